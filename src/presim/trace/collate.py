"""Identifies communicators of several captured ranks that are the same one, or that behave alike.

A captured rank may represent others, so communicators are compared by the representatives of their members:

1. Communicators are the same if their members have the same representatives, position by position. Example: the
   pipeline groups (0, 8) and (4, 12), if rank 0 represents 4 and rank 12 represents 8.
2. If a member's representative has no such communicator, its own communicator of the same shape (the same ranks,
   shifted so that it has the member's position) is used. Example: ranks 8 and 15 of a stage whose last shard is uneven
   both meet rank 0, which represents their peers 0 and 7.

Several communicators of the same members are distinguished by the order in which each rank created them
(`Group.ordinal`). Those of different members with the same representatives are distinguished by name if the ranks agree
on the names, else by the order of first use. Names come first because pipeline stages use them in different orders.

A captured rank must join every communicator that it is a member of. A rank without a representative is never awaited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.trace.representatives import Representatives
from presim.trace.schema import Group, Trace

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Membership:
    """A captured rank as a member of a communicator."""

    communicator: int  # communicator number, shared by all its members
    rank: int
    ranks: Ints  # global ranks, by position
    representatives: Ints  # by position: the captured rank that represents it; negative: none


class Communicators:
    """The communicators of a job's traces."""

    def __init__(self, traces: Sequence[Trace], representatives: Representatives) -> None:
        nodes = [_Node(trace, group, representatives) for trace in traces for group in trace.manifest.groups]
        member_nodes = [node for node in nodes if node.is_member]
        _label(member_nodes)
        self._numbers = _unite(member_nodes)
        self._memberships: dict[int, list[Membership | None]] = {trace.manifest.rank: [] for trace in traces}
        self._seats: dict[int, dict[int, int]] = {}  # communicator -> captured rank -> its position
        for node in nodes:
            self._memberships[node.rank].append(self._add_membership(node))
        for node in member_nodes:  # a member that never calls is included, because the others wait for it
            seats = self._seats[self._numbers[node.key]]
            for captured in set(node.representatives[node.ranks == node.representatives].tolist()):
                seats.setdefault(captured, int(np.flatnonzero(node.ranks == captured)[0]))

    def _add_membership(self, node: _Node) -> Membership | None:
        if not node.is_member:
            return None
        number = self._numbers[node.key]
        self._seats.setdefault(number, {})[node.rank] = node.position
        return Membership(number, node.rank, node.ranks, node.representatives)

    def memberships(self, rank: int) -> list[Membership | None]:
        """The memberships of a captured rank by group of its manifest; None for a group with unknown members."""
        return self._memberships[rank]

    def members(self, communicator: int) -> tuple[int, ...]:
        """The captured ranks that meet in a communicator."""
        return tuple(sorted(self._seats[communicator]))

    def own_seat(self, membership: Membership) -> int:
        """The position of the membership's own rank."""
        return self._seats[membership.communicator][membership.rank]

    def seat(self, membership: Membership, position: int) -> int | None:
        """The position of the captured rank that represents a position; None: nobody, or the membership's own rank."""
        representative = int(membership.representatives[position])
        if representative < 0 or representative == membership.rank:
            return None
        return self._seats[membership.communicator].get(representative)

    def unmatched(self, membership: Membership) -> tuple[int, int] | None:
        """A member whose representative lacks this communicator, with that representative; else None."""
        seats = self._seats[membership.communicator]
        for rank in np.unique(membership.representatives[membership.representatives >= 0]).tolist():
            if rank != membership.rank and rank not in seats:
                return int(membership.ranks[membership.representatives == rank][0]), rank
        return None

    def seated(self, communicator: int, *positions: int) -> tuple[int, ...]:
        """The captured ranks at the given positions."""
        return tuple(sorted(rank for rank, seat in self._seats[communicator].items() if seat in positions))


class _Node:
    """One group of one trace."""

    def __init__(self, trace: Trace, group: Group, representatives: Representatives) -> None:
        self.rank = trace.manifest.rank
        self.name = group.name
        self.ordinal = group.ordinal
        self.ranks = np.array(group.ranks, np.int64)
        self.representatives = representatives.of(self.ranks)
        self.alike = self.representatives.tobytes()  # equal where the members are represented alike
        self.label: Hashable = 0  # distinguishes communicators with the same members
        positions = np.flatnonzero(self.ranks == self.rank)
        self.is_member = bool(len(positions))
        self.position = int(positions[0]) if len(positions) else -1

    @property
    def key(self) -> tuple[bytes, Hashable]:
        return self.alike, self.label

    def shape(self) -> bytes:
        offsets: Ints = self.ranks - self.ranks[0]
        return offsets.tobytes()


def _label(nodes: Sequence[_Node]) -> None:
    """Label nodes by ordinal, then by name if names are distinct on each rank and equal on all, else by order."""
    alike: dict[tuple[bytes, int], dict[int, list[_Node]]] = {}
    for node in nodes:
        alike.setdefault((node.alike, node.ordinal), {}).setdefault(node.rank, []).append(node)
    for by_rank in alike.values():
        names = [[node.name for node in rank_nodes] for rank_nodes in by_rank.values()]
        differ = all(len(set(rank_names)) == len(rank_names) for rank_names in names)
        agree = len({name for rank_names in names for name in rank_names}) == max(map(len, names))
        for rank_nodes in by_rank.values():
            for position, node in enumerate(rank_nodes):
                node.label = node.ordinal, node.name if differ and agree else position


def _unite(nodes: Sequence[_Node]) -> dict[tuple[bytes, Hashable], int]:
    """A number for each key; counterparts share a number."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(node.key for node in nodes))}
    parent = list(range(len(numbers)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    for node, counterpart in _counterparts(nodes):
        first, second = sorted((root(numbers[node.key]), root(numbers[counterpart.key])))
        parent[second] = first
    return {key: root(number) for key, number in numbers.items()}


def _counterparts(nodes: Sequence[_Node]) -> Iterator[tuple[_Node, _Node]]:
    """Pairs of a communicator and the one that a member's representative has instead."""
    by_rank: dict[int, list[_Node]] = {}
    for node in nodes:
        by_rank.setdefault(node.rank, []).append(node)
    keys = {rank: {node.key for node in rank_nodes} for rank, rank_nodes in by_rank.items()}
    for node in nodes:
        captured = set(node.ranks[node.ranks == node.representatives].tolist())
        for representative in sorted(set(node.representatives[node.representatives >= 0].tolist()) - captured):
            if node.key in keys.get(representative, ()):
                continue
            candidates = [other for other in by_rank.get(representative, ()) if _is_shifted(node, other)]
            if candidates:
                yield node, _choose_counterpart(node, candidates, by_rank[node.rank])


def _is_shifted(node: _Node, other: _Node) -> bool:
    """Whether ``other`` has the same shape, and its rank is at the position of a member that it represents."""
    if len(node.ranks) != len(other.ranks) or node.representatives[other.position] != other.rank:
        return False
    return node.shape() == other.shape()


def _choose_counterpart(node: _Node, candidates: Sequence[_Node], siblings: Sequence[_Node]) -> _Node:
    if len(candidates) == 1:
        return candidates[0]
    named = [other for other in candidates if other.name == node.name]
    if len(named) == 1:
        return named[0]
    ordinal = [sibling for sibling in siblings if sibling.alike == node.alike].index(node)
    return candidates[min(ordinal, len(candidates) - 1)]
