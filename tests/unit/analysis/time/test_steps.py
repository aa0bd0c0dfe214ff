"""Where steps begin and end, and which of them stands for the run."""

from __future__ import annotations

import msgspec
import pytest

from presim.analysis.time.step_spread import step_spread
from presim.analysis.time.steps import find_steps
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import COMPILING, Phase, StepFacts
from presim.trace.signatures import Gemm
from support import fakes

LATENCY = 2_000


def duration_ns(m: int) -> int:
    """What `fakes.price_of` says of the product below."""
    return fakes.price_of(gemm(m)).duration_ns


def gemm(m: int) -> Gemm:
    return Gemm(m, 4096, 4096, 1, "bfloat16")


def test_without_steps_the_whole_run_is_one() -> None:
    """The only step lasts from the start of the simulation to the end of the last work."""
    build = TraceBuilder()
    build.work(gemm(64), host_ns=100)
    trace = build.trace()
    steps = find_steps(trace, fakes.simulate(fakes.priced(trace)))
    assert steps.counted == 0
    assert not steps.is_steady
    assert (steps.steady.start_ns, steps.steady.end_ns) == (0, 100 + LATENCY + duration_ns(64))


def test_the_first_step_begins_with_its_first_forward_kernel() -> None:
    """Initialising the model belongs to no step."""
    build = TraceBuilder()
    build.work(gemm(64))
    build.work(gemm(128), phase=Phase.FORWARD)
    build.step()
    trace = build.trace()
    steps = find_steps(trace, fakes.simulate(fakes.priced(trace)))
    assert steps.steps[0].start_ns == LATENCY + duration_ns(64)
    assert steps.steps[0].duration_ns == duration_ns(128)


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.OTHER])
def test_work_before_the_loop_belongs_to_no_step(phase: Phase) -> None:
    """A probe or a warm-up runs forward, too; replays of graphs may not."""
    build = TraceBuilder(msgspec.structs.replace(default_manifest(), step=StepFacts(begin=2)))
    build.work(gemm(64), phase=Phase.FORWARD)
    build.work(gemm(64), phase=Phase.BACKWARD)
    build.work(gemm(128), phase=phase)
    build.step()
    trace = build.trace()
    steps = find_steps(trace, fakes.simulate(fakes.priced(trace)))
    assert (steps.counted, steps.steady.entries) == (1, slice(2, 4))
    assert steps.steady.start_ns == LATENCY + 2 * duration_ns(64)
    assert steps.steady.duration_ns == duration_ns(128)


def test_the_median_step_after_the_first_is_the_steady_one() -> None:
    """Neither the long first step nor the one with a hiccup is shown."""
    build = TraceBuilder()
    for m in (9000, 200, 800, 100, 200):
        build.work(gemm(m))
        build.step()
    trace = build.trace()
    steps = find_steps(trace, fakes.simulate(fakes.priced(trace)))
    assert steps.steady_index == 4
    assert steps.steady.duration_ns == duration_ns(200)


def recorded_in_the_second(steps: int) -> TraceBuilder:
    """The first step asks by itself, the second records a graph, and all from then on replay it."""
    build = TraceBuilder()
    for step in range(steps):
        build.work(gemm(300 - 100 * (step > 1)))
        build.work(gemm(100), replayed=step > 0)
        build.step()
    return build


def test_a_step_that_records_a_graph_is_not_steady() -> None:
    """Where there is no other, it is shown and said; the next one is steady."""
    for count, steady in ((2, False), (3, True), (4, True)):
        trace = recorded_in_the_second(count).trace()
        steps = find_steps(trace, fakes.simulate(fakes.priced(trace)))
        assert steps.is_steady == steady
        assert steps.sets_up == ("" if steady else "CUDA graphs are recorded")
        assert steps.steady_index == count - 1


def test_a_step_that_compiles_is_not_steady() -> None:
    build = TraceBuilder()
    for scope in ("", COMPILING, "", ""):
        build.work(gemm(100), scope=scope)
        build.work(gemm(100))
        build.step()
    trace = build.trace()
    steps = find_steps(trace, fakes.simulate(fakes.priced(trace)))
    assert (steps.is_steady, steps.steady_index) == (True, 3)


def test_work_after_the_last_step_is_in_no_step() -> None:
    """Saving a checkpoint after training does not lengthen a step."""
    build = TraceBuilder()
    build.work(gemm(64))
    build.step()
    build.work(gemm(4096))
    trace = build.trace()
    steps = find_steps(trace, fakes.simulate(fakes.priced(trace)))
    assert steps.steps[-1].end_ns == LATENCY + duration_ns(64)


def test_steps_that_take_longer_for_no_more_work_warm_up_their_host() -> None:
    """They are not repeated ones, if they come first; a later one may recur."""
    build = TraceBuilder()
    for host_ns in (900_000, 700_000, 600_000, 10_000, 10_000, 600_000, 10_000, 10_000):
        build.work(gemm(200), host_ns=host_ns)
        build.step()
    trace = build.trace()
    steps = find_steps(trace, fakes.simulate(fakes.priced(trace)))
    assert steps.repeated == (3, 4, 5, 6, 7)


def test_the_mean_is_over_whole_rounds_of_steps_of_which_every_nth_does_more() -> None:
    build = TraceBuilder()
    for step in range(12):
        build.work(gemm(400 if step % 5 == 0 else 200))
        build.step()
    trace = build.trace()
    steps = find_steps(trace, fakes.simulate(fakes.priced(trace)))
    assert steps.averaged == tuple(range(2, 12))
    assert step_spread(steps).mean_s == pytest.approx((duration_ns(400) + 4 * duration_ns(200)) / 5 / 1e9, rel=0.01)


@pytest.mark.parametrize(("updates", "repeated"), [(0, (1, 2, 3, 4)), (1, (1, 2, 3, 4, 5))])
def test_what_is_left_of_the_last_iteration_is_no_step_that_repeats(updates: int, repeated: tuple[int, ...]) -> None:
    """Without optimizers, an iteration's work before its first mark counts to the step before."""
    build = TraceBuilder(msgspec.structs.replace(default_manifest(), step=StepFacts(updates=updates)))
    for size in [128] * 5 + [64]:
        build.work(gemm(size), phase=Phase.FORWARD)
        build.step()
    trace = build.trace()
    assert find_steps(trace, fakes.simulate(fakes.priced(trace))).repeated == repeated
