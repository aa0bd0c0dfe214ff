"""Place ranks on a grid derived from their groups; ranks at the same place behave alike."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.trace.collective import MESSAGES, Collective
from presim.trace.schema import Trace

Ints = NDArray[np.int64]

MAX_EXCHANGE_GROUP = 64  # in larger groups, only members at the sender's distance are assumed to exchange messages
# Names of pipeline groups: mesh_pp (DeviceMesh), PIPELINE_MODEL_PARALLEL_GROUP (Megatron). Megatron's
# EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP is excluded: not all of its members exchange messages.
_PIPELINE = re.compile(r"(?:^|_)(?:pp|pipe|pipeline)(?:_|$)", re.IGNORECASE)
_WIDER = re.compile(r"(?:^|_)(?:dp|data|tp|tensor|cp|context|ep|expert)(?:_|$)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Axis:
    """``size`` ranks at a distance of ``stride``."""

    stride: int
    size: int


@dataclasses.dataclass(frozen=True)
class ReplicatedWorld:
    """A world made of replicas of a set of ranks that includes rank 0, such as the stages of a pipeline.

    Without axes, each rank is a replica by itself.
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
        """Rank of one replica -> the ranks at its place in all other replicas that are not ``present``, ascending."""
        origins = self.origins()
        other_origins = origins[(origins != origin) & ~np.isin(origins, np.array([*present], np.int64))]
        return {origin + offset: (other_origins + offset).tolist() for offset in self.offsets}

    def number_of(self, rank: int) -> int:
        """The replica that a rank belongs to, as an index into `origins`."""
        for axis in self.axes:
            rank -= rank // axis.stride % axis.size * axis.stride
        return int(np.searchsorted(self.origins(), rank))

    def replica(self, origin: int) -> tuple[int, ...]:
        """The ranks of one replica, in the order of `offsets`."""
        return tuple(origin + offset for offset in self.offsets)


def find_layout(ranks: Sequence[int], world_size: int) -> ReplicatedWorld | None:
    """The layout whose first replica is these ranks; None if they form no grid."""
    axes: list[Axis] = []
    remaining_ranks = sorted(ranks)
    if not remaining_ranks or remaining_ranks[0] != 0:
        return None
    while len(remaining_ranks) > 1:
        stride = remaining_ranks[1]
        off_stride = (index for index, rank in enumerate(remaining_ranks) if rank != index * stride)
        size = next(off_stride, len(remaining_ranks))
        block = set(remaining_ranks[:size])
        starts = [rank for rank in remaining_ranks if rank // stride % size == 0 and rank % stride == 0]
        is_grid = {start + offset for start in starts for offset in block} == set(remaining_ranks)
        if not is_grid or world_size % (stride * size):
            return None
        axes.append(Axis(stride, size))
        remaining_ranks = starts
    return ReplicatedWorld(world_size, tuple(axes))


def exchange_closure(groups: Sequence[Sequence[int]], world_size: int) -> tuple[int, ...]:
    """Rank 0 and all ranks that exchange messages with it, directly or through others.

    Each group's offsets are applied to every rank found before: a pipeline of ranks 0, 32, 64 and rings of 0, 2, 4 form
    a grid in which each stage has such a ring. A group that crosses a grid, as the world does, ends with the world.
    """
    ranks = {0}
    for group in groups:
        offsets = {rank - min(group) for rank in group}
        if not offsets <= ranks:
            ranks = {rank + offset for rank in ranks for offset in offsets if rank + offset < world_size}
    return tuple(sorted(ranks))


def is_pipeline(name: str) -> bool:
    """Whether the members of a group with this name are the stages of one pipeline."""
    return bool(_PIPELINE.search(name)) and not _WIDER.search(name)


def exchange_peers(members: Sequence[int], rank: int, peer: int) -> tuple[int, ...]:
    """The members of a group assumed to exchange messages, given that ``rank`` sends to ``peer``.

    All members of a small group; in a larger one, all ranks at the same distance.
    """
    if len(members) <= MAX_EXCHANGE_GROUP:
        return tuple(members)
    rank_index, peer_index = members.index(rank), members.index(peer)
    distance = abs(peer_index - rank_index)
    return tuple(members[rank_index % distance :: distance]) if distance else (rank,)


def message_groups(trace: Trace) -> list[tuple[int, ...]]:
    """The sets of ranks that a rank exchanges messages with, itself included, from a capture of all of them."""
    member_sets = dict.fromkeys(
        tuple(group.ranks) for group in trace.manifest.groups if is_pipeline(group.name) and group.ranks
    )
    rank, groups = trace.manifest.rank, trace.manifest.groups
    for signature in trace.signatures:
        if isinstance(signature, Collective) and signature.kind in MESSAGES and 0 <= signature.group < len(groups):
            members = groups[signature.group].ranks
            if rank in members and 0 <= signature.peer < len(members):
                member_sets[exchange_peers(members, rank, members[signature.peer])] = None
    return list(member_sets)


def grid(groups: Sequence[Sequence[int]], world_size: int) -> tuple[Axis, ...]:
    """The axes of a job, from the groups of rank 0; the remainder of the world is an axis of its own.

    >>> grid([(0, 1, 2, 3), (0, 4, 8, 12), tuple(range(32))], 32)
    (Axis(stride=1, size=4), Axis(stride=4, size=4), Axis(stride=16, size=2))
    """
    regular = {(group[1], len(group)) for group in groups if len(group) > 1 and _is_regular(group)}
    axes: list[Axis] = []
    extent = 1
    while extent < world_size:
        sizes = [size for stride, size in regular if stride == extent and world_size % (extent * size) == 0]
        axes.append(Axis(extent, min(sizes, default=world_size // extent)))
        extent *= axes[-1].size
    return tuple(axes)


def _is_regular(group: Sequence[int]) -> bool:
    return group[0] == 0 and list(group) == list(range(0, group[1] * len(group), group[1] or 1))
