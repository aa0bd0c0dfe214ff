"""Which ranks a rank shares groups with, by the degrees of a plan."""

from __future__ import annotations

import msgspec

from presim.compose.plan import Plan
from presim.trace.schema import Group


class Layout(msgspec.Struct, frozen=True):
    """Which ranks the first rank of a pipeline stage shares groups with.

    Ranks are numbered tensor first, then context, data and pipeline, as Megatron and torchtitan number them.
    """

    world_size: int
    rank: int
    data: tuple[int, ...]  # those that context parallelism makes among them
    tensor: tuple[int, ...]
    context: tuple[int, ...]
    pipeline: tuple[int, ...]
    shard: tuple[int, ...] = ()  # of hsdp
    replicas: tuple[int, ...] = ()  # likewise
    experts: tuple[int, ...] = ()  # those that share out experts, where some do
    copies: tuple[int, ...] = ()  # those that have the same experts, within `shard` where there is one

    @property
    def neighbours(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The pairs with the rank before and after in the pipeline, which is a ring."""
        place = self.pipeline.index(self.rank)
        before, after = self.pipeline[place - 1], self.pipeline[(place + 1) % len(self.pipeline)]
        return tuple(sorted((before, self.rank))), tuple(sorted((self.rank, after)))

    @property
    def stands_for(self) -> tuple[int, ...]:
        """The other ranks of the stage."""
        return tuple(range(self.rank + 1, self.rank + len(self.data) * len(self.tensor)))


def layout(plan: Plan, world_size: int, stage: int = 0) -> Layout:
    """The groups of a stage's first rank."""
    inside = world_size // plan.pipeline  # ranks of a stage
    first = stage * inside
    data = tuple(range(first, first + inside, plan.tensor))
    sharers = plan.shard * plan.tensor or inside
    return Layout(
        world_size,
        first,
        data,
        tuple(range(first, first + plan.tensor)),
        data[: plan.context],
        tuple(range(0, world_size, inside)),
        data[: plan.shard] if plan.shard else (),
        data[:: plan.shard] if plan.shard else (),
        tuple(range(first, first + plan.expert)) if plan.expert > 1 else (),
        tuple(range(first, first + sharers, plan.expert)) if plan.expert > 1 else (),
    )


def groups(place: Layout) -> list[Group]:
    """The groups that the rank communicates in, by name."""
    everyone = tuple(range(place.world_size))
    named = [
        ("world", everyone),
        ("data", place.data),
        ("tensor", place.tensor),
        ("context", place.context),
        ("pipeline", place.pipeline),
    ]
    if place.shard:
        named += [("shard", place.shard), ("replicas", place.replicas)]
    if place.experts:
        named += [("experts", place.experts), ("copies", place.copies)]
    if len(place.pipeline) > 1:
        named += [(f"pipeline {'-'.join(map(str, pair))}", pair) for pair in place.neighbours]
    return [Group(name, ranks, len(ranks)) for name, ranks in named]
