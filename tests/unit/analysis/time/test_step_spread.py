"""How steps differ."""

from __future__ import annotations

import pytest

from presim.analysis.notes.step_notes import step_notes
from presim.analysis.time.step_spread import step_spread, unusual_steps
from presim.analysis.time.steps import find_steps
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Phase, Trace
from presim.trace.signatures import Gemm
from support import fakes

USUAL, LONG, SHORT = [Phase.FORWARD] * 6, [Phase.FORWARD] * 12, [Phase.FORWARD] * 3


def trace_of(*steps: list[Phase]) -> Trace:
    build = TraceBuilder()
    for phases in steps:
        for phase in phases:
            build.work(Gemm(4096, 4096, 4096, 1, "bfloat16"), phase=phase)
        build.step()
    return build.trace()


def test_unusual_steps_are_named_in_both_directions() -> None:
    trace = trace_of(USUAL, USUAL, LONG, USUAL, SHORT, USUAL)
    timeline = fakes.simulate(fakes.priced(trace))
    steps = find_steps(trace, timeline)
    assert [step.index for step in unusual_steps(trace, timeline, steps)] == [2, 4]
    assert [step.reason.split()[-2:] for step in unusual_steps(trace, timeline, steps)] == [
        ["more", "forward"],
        ["less", "forward"],
    ]
    note = " ".join(step_notes(trace, timeline, steps))
    assert "Steps differ: mean " in note
    assert "step 3 " in note
    assert "step 5 " in note


def test_mean_and_median_leave_the_first_step_out() -> None:
    trace = trace_of(LONG, USUAL, LONG, USUAL)
    steps = find_steps(trace, fakes.simulate(fakes.priced(trace)))
    usual_s, long_s = (steps.steps[index].duration_ns / 1e9 for index in (1, 2))
    spread = step_spread(steps)
    assert (spread.min_s, spread.median_s, spread.max_s) == (usual_s, steps.steps[3].duration_ns / 1e9, long_s)
    assert spread.mean_s == pytest.approx((usual_s * 2 + long_s) / 3, rel=0.01)


def test_equal_steps_need_no_note() -> None:
    trace = trace_of(USUAL, USUAL, USUAL)
    timeline = fakes.simulate(fakes.priced(trace))
    assert step_notes(trace, timeline, find_steps(trace, timeline)) == []
    assert step_spread(find_steps(trace_of(USUAL), fakes.simulate(fakes.priced(trace_of(USUAL))))).mean_s is None
