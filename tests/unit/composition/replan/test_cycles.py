"""The cycle of micro-batches is the shortest period of the calls that holds both passes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from presim.composition.replan.cycles import Cycle, NotPeriodicError, find_cycle, program_calls
from presim.composition.replan.object_names import definitions
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Category, Phase, Trace
from support.replanned_programs import Event, Program, kernel


def step_of(passes: Sequence[str], sizes: Sequence[int] | None = None) -> Trace:
    """A step of passes as ``f0``: forward of chunk 0; ``b1``: backward of chunk 1; ``e0``: evaluation."""
    build = TraceBuilder()
    for number, word in enumerate(passes):
        phase = Phase.BACKWARD if word[0] == "b" else Phase.FORWARD
        for part in ("norm", "mlp"):
            build.work(kernel(sizes[number] if sizes else 8), scope=f"chunk{word[1]}.{part}", phase=phase)
    build.work(kernel(99), phase=Phase.OPTIMIZER)
    build.step()
    return build.trace()


def cycle_of(trace: Trace) -> Cycle:
    return find_cycle(trace, trace.steps()[0], program_calls(trace, definitions(trace)))


CASES = {  # passes -> repetitions, micro-batches of a cycle, of the step
    "accumulation": (["f0", "b0"] * 5, 5, 1, 5),
    "one forward, one backward": (["f0"] * 2 + ["f0", "b0"] * 4 + ["b0"] * 2, 4, 1, 6),
    "interleaved chunks": (
        ["f0", "f0", "f1"] + ["f1", "b1", "f0", "b1", "f0", "b0", "f1", "b0"] * 3 + ["b0", "b0", "b1"],
        3,
        2,
        7,
    ),
    "other chunks warm up first": (["f1", "b1", "f2", "b2", "f3", "b3"] + ["f0", "b0"] * 5, 5, 1, 5),
    "evaluation first": (["e0"] * 3 + ["f0", "b0"] * 4, 4, 1, 4),
}


@pytest.mark.parametrize("case", CASES)
def test_schedules_have_their_cycles(case: str) -> None:
    passes, repetitions, in_cycle, in_step = CASES[case]
    cycle = cycle_of(step_of(passes))
    assert (len(cycle.calls), cycle.micro_batches, cycle.step_micro_batches) == (repetitions, in_cycle, in_step)
    assert cycle.are_equal


def test_a_first_micro_batch_of_another_size_is_counted() -> None:
    """It is no repetition, and the samples of the others do not tell its own."""
    cycle = cycle_of(step_of(["f0", "b0"] * 5, [16, 16] + [8] * 8))
    assert (len(cycle.calls), cycle.step_micro_batches, cycle.are_equal) == (4, 5, False)


@pytest.mark.parametrize(
    "passes", [["f0"] * 6 + ["b0"] * 6, ["f0", "b0"], ["f0"] * 4, ["f0", "f0", "b0", "b0"], ["e0", "f0"]]
)
def test_other_steps_have_none(passes: list[str]) -> None:
    """All forward passes first, a single micro-batch, or no backward pass."""
    with pytest.raises(NotPeriodicError):
        cycle_of(step_of(passes))


def test_what_a_block_is_taken_for_may_differ() -> None:
    """A block's category is noticed by its use, in one micro-batch of ten as something else."""
    build = TraceBuilder()
    for micro_batch in range(4):
        build.work(kernel(8), scope="layer", phase=Phase.FORWARD)
        address = 4096 * (micro_batch + 1)
        build.alloc(address, 512)
        build.retag(address, Category.TEMPORARY if micro_batch == 1 else Category.ACTIVATION)
        build.work(kernel(8), scope="layer", phase=Phase.BACKWARD)
        build.free(address, 512)
    build.step()
    assert len(cycle_of(build.trace()).calls) == 4


def test_a_small_kernel_of_the_other_phase_makes_no_cycle() -> None:
    """The gradient of a loss is filled before its backward pass begins."""
    build = TraceBuilder()
    for _ in range(5):
        for part in ("norm", "mlp"):
            build.work(kernel(8), scope=part, phase=Phase.FORWARD)
    for _ in range(5):
        build.work(kernel(1), operator="aten::fill_", phase=Phase.FORWARD)
        build.work(kernel(8), scope="mlp", phase=Phase.BACKWARD)
    build.step()
    with pytest.raises(NotPeriodicError, match="no forward and backward pass follow others like them"):
        cycle_of(build.trace())


def test_events_of_the_allocator_are_no_calls() -> None:
    """Those for which something waits are, and the last of their kind."""
    program = Program([(0, 1, False), (0, 2, False)], events=[Event(record=0, wait=0, lag=2)])
    build = TraceBuilder()
    build.work(kernel(1), phase=Phase.FORWARD)
    build.record(stream=3)
    allocator_s = build.trace()
    assert program_calls(allocator_s, definitions(allocator_s)).tolist() == [0]
    trace = program.trace(4)
    assert len(program_calls(trace, definitions(trace))) == len(trace)
