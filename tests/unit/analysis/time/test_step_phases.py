"""The time of a step's phases."""

from __future__ import annotations

import pytest

from presim.analysis.time.step_phases import step_phases
from presim.analysis.time.steps import find_steps
from presim.result.evaluated_job import StepPhase
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Trace
from support import fakes
from support.step_shapes import CRITIC, EVALUATION, GENERATOR, critic_and_generator, gemm


def duration_s(rows: int) -> float:
    return fakes.price_of(gemm(rows)).duration_ns / 1e9


def phases_of(trace: Trace) -> list[StepPhase]:
    timeline = fakes.simulate(fakes.priced(trace))
    return step_phases(trace, timeline, find_steps(trace, timeline))


def test_phases_add_up_to_the_step() -> None:
    critic, generator = phases_of(critic_and_generator())
    assert (critic.kind, critic.line, critic.runs) == ("loop", "/home/me/gan.py:512", 3)
    assert (critic.run_s, critic.seconds) == pytest.approx((duration_s(CRITIC), 3 * duration_s(CRITIC)))
    assert generator.seconds == pytest.approx(duration_s(GENERATOR))
    assert critic.share is not None
    assert generator.share is not None
    assert critic.share + generator.share == pytest.approx(1)


def test_a_phase_of_other_steps_alone_has_no_share() -> None:
    evaluation = phases_of(critic_and_generator(evaluated_step=3))[-1]
    assert (evaluation.kind, evaluation.share, evaluation.share_of_steps) == ("call", None, 0.25)
    assert evaluation.seconds == pytest.approx(duration_s(EVALUATION))


def test_a_trace_without_phases_has_none() -> None:
    build = TraceBuilder()
    build.work(gemm(CRITIC))
    build.step()
    assert phases_of(build.trace()) == []
