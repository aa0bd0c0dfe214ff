"""Changes the number of stages and micro-batches of a captured pipeline with several chunks of layers a stage.

Stages between the first and the last do the same work in another order, and stages of even and of odd number post their
messages in another order. So four captured stages say what a longer pipeline does: its stages of even number are the
third, those of odd number the second, with more passes ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from presim.composition.replan.captured_stage import CapturedStage
from presim.composition.replan.insertion import check_memory
from presim.composition.replan.interleaved_order import InterleavedOrder
from presim.composition.replan.stage_differences import check_equal_beside_messages
from presim.composition.replan.stage_ranks import Extended, StageMove, each_pipeline, represented_ranks, stage_ranks
from presim.errors import InputError
from presim.trace.schema import Trace

CAPTURED_STAGES = 4
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
) -> tuple[list[Trace], dict[int, list[int]], list[str]]:
    """The traces of a pipeline with so many stages, the ranks that each represents, and sentences for the reader.

    ``traces``: of four stages with ``chunks`` of layers each, whose steps have `captured_micro_batches`. ``stages``:
    even. ``micro_batches``: of the last step; the others have as many as the captured ones for each stage.

    Raises:
        InputError: passes are not in Megatron's interleaved order, the second stage's do not make those of the third,
            or a group reaches over stages in a way that shows no law.
    """
    return each_pipeline(
        lambda of_pipeline, represented: _extended(of_pipeline, stages, chunks, represented, micro_batches),
        traces,
        stands_for,
    )


def _extended(
    traces: Sequence[Trace], stages: int, chunks: int, stands_for: Mapping[int, Sequence[int]], micro_batches: int
) -> Extended:
    """One pipeline with so many stages."""
    traces = sorted(traces, key=lambda trace: trace.manifest.rank)
    ranks = stage_ranks(traces)
    if ranks.stages != CAPTURED_STAGES or stages % 2:
        raise InputError(
            f"an interleaved pipeline of {stages} stages is extended from {CAPTURED_STAGES} if their number is even, "
            f"and {ranks.stages} are captured"
        )
    sizes = captured_micro_batches(ranks.stages)
    check_memory(traces, micro_batches / sizes[-1] * stages / ranks.stages)
    captured = [
        CapturedStage.of(trace, _orders(trace, sizes, chunks, ranks.stages, stage))
        for stage, trace in enumerate(traces)
    ]
    _check_third_stage(captured, StageMove(ranks, 1, ranks.stages, 2), sizes, chunks)
    sources = [0, *(1 if stage % 2 else 2 for stage in range(1, stages - 1)), ranks.stages - 1]
    moves = [StageMove(ranks, source, stages, stage) for stage, source in enumerate(sources)]
    planned = []
    for move in moves:
        stage = captured[move.stage]
        new_sizes = (captured_micro_batches(stages)[0], micro_batches)
        orders = _orders(stage.trace, new_sizes, chunks, stages, move.new_stage)
        planned.append(move.moved(stage.with_orders(orders)))
    represented = represented_ranks(ranks, moves, stands_for, [traces[source].manifest.rank for source in sources])
    sentence = (
        f"Composed of {ranks.stages} captured stages of {chunks} chunks: {stages} stages with the layers of those, in "
        f"the order of Megatron's interleaved schedule with {micro_batches} micro-batches. The second captured stage "
        "in the order of the third equals it, but for the order of messages."
    )
    return planned, represented, [sentence]


def _orders(trace: Trace, sizes: tuple[int, int], chunks: int, stages: int, stage: int) -> list[InterleavedOrder]:
    """The order of each step; ``sizes``: micro-batches of first steps, and of the last."""
    first, last = sizes
    numbers = [*[first] * (len(trace.steps()) - 1), last]
    return [InterleavedOrder.of(number, chunks, stages, stage) for number in numbers]


def _check_third_stage(captured: Sequence[CapturedStage], move: StageMove, sizes: tuple[int, int], chunks: int) -> None:
    """Check that the second stage's passes in the third one's order are the third stage."""
    second = captured[1]
    orders = _orders(second.trace, sizes, chunks, move.new_stages, move.new_stage)
    check_equal_beside_messages(move.moved(second.with_orders(orders)), captured[2].trace)
