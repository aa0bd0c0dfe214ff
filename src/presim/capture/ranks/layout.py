"""Ranks that exchange with each other, as places on a grid: who else in the world has the same place."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Axis:
    """``size`` ranks at a distance of ``stride``."""

    stride: int
    size: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """A world that consists of replicas of some ranks, rank 0 among them: pipelines, for example.

    Without axes each rank is a replica by itself.
    """

    world_size: int
    axes: tuple[Axis, ...] = ()  # by ascending stride

    @property
    def offsets(self) -> tuple[int, ...]:
        """The ranks of the first replica, ascending."""
        ranks = np.zeros(1, np.int64)
        for axis in self.axes:
            ranks = (ranks[None, :] + axis.stride * np.arange(axis.size)[:, None]).reshape(-1)
        return tuple(sorted(ranks.tolist()))

    def origins(self) -> Ints:
        """The lowest rank of each replica, ascending."""
        ranks = np.arange(self.world_size, dtype=np.int64)
        first = np.ones(self.world_size, bool)
        for axis in self.axes:
            first &= ranks // axis.stride % axis.size == 0
        return ranks[first]

    def stands_for(self, origin: int = 0, present: Collection[int] = ()) -> dict[int, list[int]]:
        """By rank of one replica: the ranks at its place in all other replicas that are not present, ascending."""
        origins = self.origins()
        others = origins[(origins != origin) & ~np.isin(origins, np.array([*present], np.int64))]
        return {origin + offset: (others + offset).tolist() for offset in self.offsets}

    def replica(self, origin: int) -> tuple[int, ...]:
        """The ranks of one replica, in the order of `offsets`."""
        return tuple(origin + offset for offset in self.offsets)


def find_layout(ranks: Sequence[int], world_size: int) -> Layout | None:
    """The layout whose first replica these ranks are; None where they lie irregularly."""
    axes: list[Axis] = []
    rest = sorted(ranks)
    if not rest or rest[0] != 0:
        return None
    while len(rest) > 1:
        stride = rest[1]
        size = next((at for at, rank in enumerate(rest) if rank != at * stride), len(rest))
        block = set(rest[:size])
        starts = [rank for rank in rest if rank // stride % size == 0 and rank % stride == 0]
        if {start + offset for start in starts for offset in block} != set(rest) or world_size % (stride * size):
            return None
        axes.append(Axis(stride, size))
        rest = starts
    return Layout(world_size, tuple(axes))


def together(groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Rank 0 and whoever exchanges with it: the closure of groups under each other's shifts.

    A pipeline of ranks 0, 32, 64 and rings of 0, 2, 4 are taken to be a grid: each stage has such a ring.
    """
    ranks = {0}
    for group in groups:
        offsets = {rank - min(group) for rank in group}
        if not offsets <= ranks:
            ranks = {rank + offset for rank in ranks for offset in offsets}
    return tuple(sorted(ranks))
