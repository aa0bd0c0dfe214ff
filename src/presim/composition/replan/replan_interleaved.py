"""Changes the number of stages and micro-batches of a captured pipeline with several chunks of layers a stage.

Stages between the first and the last do the same work in another order, and stages of even and of odd number post their
messages in another order. So few captured stages say what a longer pipeline does: those between are one of two of them,
with more passes ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from presim.composition.replan.captured_stage import CapturedStage
from presim.composition.replan.insertion import check_memory
from presim.composition.replan.interleaved_order import InterleavedOrder
from presim.composition.replan.stage_differences import check_equal_beside_messages
from presim.composition.replan.stage_ranks import Extended, StageMove, each_pipeline, represented_ranks, stage_ranks
from presim.composition.replan.stage_sources import ONE_AT_EACH_END, Ends, captured_stages, source_stages
from presim.errors import InputError
from presim.trace.schema import Trace

_GROUPS = (2, 3)  # of micro-batches, in first steps and in the last: a third shows what further ones do


def captured_micro_batches(stages: int) -> tuple[int, int]:
    """Micro-batches that the first captured steps need, and those of the last one."""
    first, last = _GROUPS
    return first * stages, last * stages


def with_interleaved_stages(
    traces: Sequence[Trace],
    stages: int,
    chunks: int,
    stands_for: Mapping[int, Sequence[int]],
    micro_batches: int,
    ends: Ends = ONE_AT_EACH_END,
) -> tuple[list[Trace], dict[int, list[int]], list[str]]:
    """The traces of a pipeline with so many stages, the ranks that each represents, and sentences for the reader.

    ``traces``: of the first and last stages and two between, with ``chunks`` of layers each, whose steps have
    `captured_micro_batches`. ``stages``: as many as are captured and a multiple of two. ``micro_batches``: of the last
    step; the others have as many as the captured ones for each stage.

    Raises:
        InputError: passes are not in Megatron's interleaved order, the first stage between does not make the second,
            or a group reaches over stages in a way that shows no law.
    """
    return each_pipeline(
        lambda of_pipeline, represented: _extended(of_pipeline, stages, chunks, represented, micro_batches, ends),
        traces,
        stands_for,
    )


def _extended(
    traces: Sequence[Trace],
    stages: int,
    chunks: int,
    stands_for: Mapping[int, Sequence[int]],
    micro_batches: int,
    ends: Ends,
) -> Extended:
    """One pipeline with so many stages."""
    traces = sorted(traces, key=lambda trace: trace.manifest.rank)
    ranks = stage_ranks(traces)
    needed = captured_stages(ends)
    if ranks.stages != needed or stages < needed or (stages - needed) % 2:
        raise InputError(
            f"an interleaved pipeline is extended from {needed} stages by a multiple of two, and {ranks.stages} are "
            f"captured and {stages} asked for"
        )
    sizes = captured_micro_batches(ranks.stages)
    check_memory(traces, micro_batches / sizes[-1] * stages / ranks.stages)
    captured = [
        CapturedStage.of(trace, _orders(trace, sizes, chunks, ranks.stages, stage, ends))
        for stage, trace in enumerate(traces)
    ]
    _check_next_stage(captured, StageMove(ranks, ends[0], ranks.stages, ends[0] + 1), sizes, chunks, ends)
    sources = source_stages(ends, stages, ranks.stages)
    moves = [StageMove(ranks, source, stages, stage) for stage, source in enumerate(sources)]
    planned = []
    for move in moves:
        stage = captured[move.stage]
        new_sizes = (captured_micro_batches(stages)[0], micro_batches)
        orders = _orders(stage.trace, new_sizes, chunks, stages, move.new_stage, ends)
        planned.append(move.moved(stage.with_orders(orders)))
    represented = represented_ranks(ranks, moves, stands_for, [traces[source].manifest.rank for source in sources])
    sentence = (
        f"Composed of {ranks.stages} captured stages of {chunks} chunks: {stages} stages with the layers of those, in "
        f"the order of Megatron's interleaved schedule with {micro_batches} micro-batches. Captured stage {ends[0]} "
        f"in the order of stage {ends[0] + 1} equals it, but for the order of messages."
    )
    return planned, represented, [sentence]


def _orders(
    trace: Trace, sizes: tuple[int, int], chunks: int, stages: int, stage: int, ends: Ends
) -> list[InterleavedOrder]:
    """The order of each step; ``sizes``: micro-batches of first steps, and of the last."""
    first, last = sizes
    numbers = [*[first] * (len(trace.steps()) - 1), last]
    return [InterleavedOrder.of(number, chunks, stages, stage, ends) for number in numbers]


def _check_next_stage(
    captured: Sequence[CapturedStage], move: StageMove, sizes: tuple[int, int], chunks: int, ends: Ends
) -> None:
    """Check that a stage's passes in the next one's order are the next stage."""
    stage = captured[move.stage]
    orders = _orders(stage.trace, sizes, chunks, move.new_stages, move.new_stage, ends)
    check_equal_beside_messages(move.moved(stage.with_orders(orders)), captured[move.new_stage].trace)
