"""Changes the number of stages of a captured pipeline.

Stages between the first and the last do the same work. They differ in how many forward passes they run ahead, and in
the ranks they exchange messages with. So few captured stages say what a longer pipeline does: each added one is the
first of two between, with more passes ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from presim.composition.replan.captured_stage import CapturedStage
from presim.composition.replan.insertion import check_memory
from presim.composition.replan.pass_order import PassOrder
from presim.composition.replan.reserved_check import sentences_on_reserved
from presim.composition.replan.stage_differences import check_equal
from presim.composition.replan.stage_ranks import Extended, StageMove, each_pipeline, represented_ranks, stage_ranks
from presim.composition.replan.stage_sources import ONE_AT_EACH_END, Ends, captured_stages
from presim.errors import InputError
from presim.trace.schema import Trace

_CYCLES = 2  # micro-batches for each stage, after which the schedule has repeated


def with_stages(
    traces: Sequence[Trace],
    stages: int,
    stands_for: Mapping[int, Sequence[int]],
    micro_batches: int | None = None,
    ends: Ends = ONE_AT_EACH_END,
) -> tuple[list[Trace], dict[int, list[int]], list[str]]:
    """The traces of a job with more pipeline stages, the ranks that each represents, and sentences for the reader.

    Pipelines whose ranks differ are extended each alone. Stages keep their layers, so the model and the world grow with
    their number. Steps have two micro-batches more for each added stage, as the schedule needs to repeat, or
    ``micro_batches`` if these are fewer. ``stands_for``: the ranks that the captured ones represent. ``ends``: the
    first and the last stages with layers of their own.

    Raises:
        InputError: the job has no pipeline under 1F1B with two stages between its ends, the first of them with fewer
            passes ahead is not the second, or a group reaches over stages in a way that shows no law.
    """
    planned, represented, sentences = each_pipeline(
        lambda of_pipeline, of_ranks: _extended(of_pipeline, stages, of_ranks, micro_batches, ends),
        traces,
        stands_for,
    )
    return planned, represented, [*sentences, *(sentences_on_reserved(traces) if sentences else ())]


def _extended(
    traces: Sequence[Trace],
    stages: int,
    stands_for: Mapping[int, Sequence[int]],
    micro_batches: int | None,
    ends: Ends,
) -> Extended:
    """One pipeline with more stages."""
    traces = sorted(traces, key=lambda trace: trace.manifest.rank)
    ranks = stage_ranks(traces)
    if ranks.stages < captured_stages(ends):
        raise InputError(
            f"the job was captured with {ranks.stages} pipeline stages, and the first, the last and two between them "
            f"have to be seen; capture it with at least {captured_stages(ends)}"
        )
    if stages < ranks.stages:
        raise InputError(
            f"the job was captured with {ranks.stages} pipeline stages and cannot be cut to {stages}; choose at least "
            f"{ranks.stages}"
        )
    if stages == ranks.stages:
        return list(traces), {rank: list(represented) for rank, represented in stands_for.items()}, []
    added = stages - ranks.stages
    check_memory(traces, (stages / ranks.stages) ** 2)
    repeated = ends[0]
    _check_next_stage(traces, StageMove(ranks, repeated, ranks.stages, repeated + 1))
    sources = [*range(repeated), *[repeated] * added, *range(repeated, ranks.stages)]
    moves = [StageMove(ranks, source, stages, stage) for stage, source in enumerate(sources)]
    captured = [CapturedStage.of(trace) for trace in traces]
    further = _further_micro_batches(captured, stages, added, micro_batches)
    planned = [move.moved(_with_passes(captured[move.stage], _leading(move), further, stages)) for move in moves]
    represented = represented_ranks(ranks, moves, stands_for, [traces[source].manifest.rank for source in sources])
    sentence = (
        f"Extended from {ranks.stages} to {stages} pipeline stages with the layers of those captured: stages between "
        f"the first and the last are stage {repeated} with more forward passes ahead. With one pass less, that equals "
        f"stage {repeated + 1}."
    )
    return planned, represented, [sentence]


def _further_micro_batches(
    captured: Sequence[CapturedStage], stages: int, added: int, micro_batches: int | None
) -> int:
    """Micro-batches to add to those of the last captured step."""
    num_captured = captured[0].steps[-1].order.micro_batches
    further = _CYCLES * added if micro_batches is None else min(micro_batches - num_captured, _CYCLES * added)
    if num_captured + further < stages:
        raise InputError(
            f"{stages} stages under 1F1B take at least as many micro-batches, and the step would have "
            f"{num_captured + further}; choose more with --micro-batches"
        )
    return further


def _leading(move: StageMove) -> int:
    """Forward passes before the first backward pass, added to those of the captured stage."""
    return (move.new_stages - move.new_stage) - (move.ranks.stages - move.stage)


def _check_next_stage(traces: Sequence[Trace], move: StageMove) -> None:
    """Check that a stage with one forward pass less ahead is the next one."""
    check_equal(move.moved(_with_passes(CapturedStage.of(traces[move.stage]), -1, 0, 0)), traces[move.new_stage])


def _with_passes(stage: CapturedStage, leading: int, micro_batches: int, fewest: int) -> Trace:
    """The stage with so many forward passes more before the first backward pass, and micro-batches more.

    ``fewest``: micro-batches of a step; the first one was captured with fewer than the last, and may have too few to
    show all leading passes.
    """
    return stage.with_orders(
        [
            PassOrder(step.order.leading + leading, max(step.order.micro_batches + micro_batches, fewest))
            for step in stage.steps
        ]
    )
