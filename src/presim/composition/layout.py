"""The training plan of a model on a cluster: one typed value, validated before composing."""

from __future__ import annotations

import msgspec

from presim.composition import stage_placement
from presim.composition.plan import Plan
from presim.trace.schema import Group

_PAIR = "pipeline "  # begins the names of groups of two ranks of the pipeline


class StageGroups(msgspec.Struct, frozen=True):
    """Process groups of the first rank of a pipeline stage.

    Rank numbers vary fastest along tensor, then context, data and pipeline, as in Megatron and torchtitan.
    """

    world_size: int
    rank: int
    # data-parallel group, including context-parallel ranks, and under DualPipe those with the copies of the stages
    data: tuple[int, ...]
    tensor: tuple[int, ...]
    context: tuple[int, ...]
    pipeline: tuple[int, ...]
    shard: tuple[int, ...] = ()  # hsdp: ranks that shard parameters
    replicas: tuple[int, ...] = ()  # hsdp: ranks with copies of the same shard
    experts: tuple[int, ...] = ()  # expert-parallel group, if any
    copies: tuple[int, ...] = ()  # ranks with the same experts, within `shard` if there is one
    end_ranks: tuple[int, ...] = ()  # ranks with the first and the last stage
    # numbers in the pipeline of other ranks than neighbours that the rank exchanges messages with
    partners: tuple[int, ...] = ()
    # groups that another rank has with its partners and this one lacks; ranks share a table of collectives, whose
    # groups have to exist on each
    missing_pairs: int = 0

    @property
    def neighbours(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(previous rank, this rank) and (this rank, next rank) in the pipeline, seen as a ring."""
        stage = self.pipeline.index(self.rank)
        before, after = self.pipeline[stage - 1], self.pipeline[(stage + 1) % len(self.pipeline)]
        return tuple(sorted((before, self.rank))), tuple(sorted((self.rank, after)))

    @property
    def stands_for(self) -> tuple[int, ...]:
        """The other ranks of the stage, which this rank represents."""
        return tuple(range(self.rank + 1, self.rank + self.world_size // len(self.pipeline)))


def layout(plan: Plan, world_size: int, stage: int = 0) -> StageGroups:
    """Process groups of a stage's first rank."""
    inside = world_size // plan.pipeline  # ranks per stage
    first = stage * inside
    stage_ranks = tuple(range(first, first + inside, plan.tensor))
    # under DualPipe the opposite rank of the pipeline has the same two stages
    across = (plan.pipeline - 1 - 2 * stage) * inside if plan.order == "dualpipe" else 0
    data = tuple(sorted((*stage_ranks, *(rank + across for rank in stage_ranks)))) if across else stage_ranks
    sharers = plan.shard * plan.tensor or inside
    copies = tuple(range(first, first + sharers, plan.expert)) if plan.expert > 1 else ()
    if across and copies and not plan.shard:
        copies = tuple(sorted((*copies, *(rank + across for rank in copies))))
    pipeline = tuple(range(0, world_size, inside))
    rank_by_stage, partners = stage_placement.stage_ranks(plan), stage_placement.partners(plan)
    return StageGroups(
        world_size,
        first,
        data,
        tuple(range(first, first + plan.tensor)),
        stage_ranks[: plan.context],
        pipeline,
        stage_ranks[: plan.shard] if plan.shard else (),
        data[:: plan.shard] if plan.shard else (),
        tuple(range(first, first + plan.expert)) if plan.expert > 1 else (),
        copies,
        (pipeline[rank_by_stage[0]], pipeline[rank_by_stage[-1]]),
        tuple(sorted(partners[stage])),
        max(map(len, partners)) - len(partners[stage]),
    )


def groups(rank_layout: StageGroups, *, tied: bool = False) -> list[Group]:
    """The groups that the rank communicates in, by name; ``tied``: the pipeline's ends share a parameter."""
    everyone = tuple(range(rank_layout.world_size))
    named = [
        ("world", everyone),
        ("data", rank_layout.data),
        ("tensor", rank_layout.tensor),
        ("context", rank_layout.context),
        ("pipeline", rank_layout.pipeline),
    ]
    if rank_layout.shard:
        named += [("shard", rank_layout.shard), ("replicas", rank_layout.replicas)]
    if rank_layout.experts:
        named += [("experts", rank_layout.experts), ("copies", rank_layout.copies)]
    if len(rank_layout.pipeline) > 1:
        named += [(f"{_PAIR}{'-'.join(map(str, pair))}", pair) for pair in rank_layout.neighbours]
    if tied:
        named.append(("embedding", tuple(sorted(rank_layout.end_ranks))))
    pairs = [tuple(sorted((rank_layout.rank, rank_layout.pipeline[partner]))) for partner in rank_layout.partners]
    for pair in (*pairs, *[rank_layout.neighbours[1]] * rank_layout.missing_pairs):
        named.append((f"{_PAIR}{'-'.join(map(str, pair))}", pair))
    return [Group(name, ranks, len(ranks)) for name, ranks in named]


def pair_groups(rank_layout: StageGroups, *, tied: bool = False) -> dict[int, int]:
    """Number in the pipeline of each rank that the rank exchanges messages with -> index of the group of the two."""
    indices = {}
    all_groups = groups(rank_layout, tied=tied)
    for index, group in enumerate(all_groups[: len(all_groups) - rank_layout.missing_pairs]):
        if group.name.startswith(_PAIR):
            (other,) = set(group.ranks) - {rank_layout.rank}
            indices[rank_layout.pipeline.index(other)] = index
    return indices
