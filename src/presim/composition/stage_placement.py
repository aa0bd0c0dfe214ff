"""Which rank of a pipeline each stage of a plan lies on."""

from __future__ import annotations

from presim.composition import own_schedule
from presim.composition.pipeline_steps import rank_of_stage
from presim.composition.plan import Plan


def stage_ranks(plan: Plan) -> tuple[int, ...]:
    """The rank of each stage; under DualPipe the copies of stages follow them."""
    if plan.rank_passes:
        return own_schedule.stage_ranks(plan.rank_passes)
    copies = 2 if plan.order == "dualpipe" else 1
    stages = plan.pipeline * plan.virtual * copies
    return tuple(rank_of_stage(plan.order, plan.pipeline, stage) for stage in range(stages))


def partners(plan: Plan) -> tuple[frozenset[int], ...]:
    """Of each rank, the other ranks that it exchanges tensors or signals with beyond its neighbours in the ring."""
    partners_by_rank = [set[int]() for _ in range(plan.pipeline)]
    for first, second in own_schedule.pairs_of_ranks(plan.rank_passes) if plan.rank_passes else ():
        if (first - second) % plan.pipeline not in (1, plan.pipeline - 1):
            partners_by_rank[first].add(second)
            partners_by_rank[second].add(first)
    return tuple(map(frozenset, partners_by_rank))
