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
class Place:
    """A captured rank's place in a communicator."""

    communicator: int  # communicator number, shared by all its members
    rank: int
    ranks: Ints  # global ranks, by position
    representatives: Ints  # by position: the captured rank that represents it; negative: none


class Communicators:
    """The communicators of a job's traces."""

    def __init__(self, traces: Sequence[Trace], representatives: Representatives) -> None:
        nodes = [_Node(trace, group, representatives) for trace in traces for group in trace.manifest.groups]
        known = [node for node in nodes if node.is_member]
        _label(known)
        self._numbers = _unite(known)
        self._places: dict[int, list[Place | None]] = {trace.manifest.rank: [] for trace in traces}
        self._seats: dict[int, dict[int, int]] = {}  # communicator -> captured rank -> its position
        for node in nodes:
            self._places[node.rank].append(self._place(node))
        for node in known:  # a member that never calls is included, because the others wait for it
            seats = self._seats[self._numbers[node.key]]
            for captured in set(node.representatives[node.ranks == node.representatives].tolist()):
                seats.setdefault(captured, int(np.flatnonzero(node.ranks == captured)[0]))

    def _place(self, node: _Node) -> Place | None:
        if not node.is_member:
            return None
        number = self._numbers[node.key]
        self._seats.setdefault(number, {})[node.rank] = node.position
        return Place(number, node.rank, node.ranks, node.representatives)

    def places(self, rank: int) -> list[Place | None]:
        """The places of a captured rank by group of its manifest; None for a group with unknown members."""
        return self._places[rank]

    def members(self, communicator: int) -> tuple[int, ...]:
        """The captured ranks that meet in a communicator."""
        return tuple(sorted(self._seats[communicator]))

    def own_seat(self, place: Place) -> int:
        """The position of the place's own rank."""
        return self._seats[place.communicator][place.rank]

    def seat(self, place: Place, position: int) -> int | None:
        """The position of the captured rank that represents a position; None: nobody, or the place's own rank."""
        representative = int(place.representatives[position])
        if representative < 0 or representative == place.rank:
            return None
        return self._seats[place.communicator].get(representative)

    def unmatched(self, place: Place) -> tuple[int, int] | None:
        """A member whose representative lacks this communicator, with that representative; else None."""
        seats = self._seats[place.communicator]
        for rank in np.unique(place.representatives[place.representatives >= 0]).tolist():
            if rank != place.rank and rank not in seats:
                return int(place.ranks[place.representatives == rank][0]), rank
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
        own = np.flatnonzero(self.ranks == self.rank)
        self.is_member = bool(len(own))
        self.position = int(own[0]) if len(own) else -1

    @property
    def key(self) -> tuple[bytes, Hashable]:
        return self.alike, self.label

    def shape(self) -> bytes:
        offsets: Ints = self.ranks - self.ranks[0]
        return offsets.tobytes()


def _label(nodes: Sequence[_Node]) -> None:
    """By ordinal; then by name where the names of a rank's alike communicators differ and agree, else by order."""
    alike: dict[tuple[bytes, int], dict[int, list[_Node]]] = {}
    for node in nodes:
        alike.setdefault((node.alike, node.ordinal), {}).setdefault(node.rank, []).append(node)
    for by_rank in alike.values():
        names = [[node.name for node in found] for found in by_rank.values()]
        differ = all(len(set(each)) == len(each) for each in names)
        agree = len({name for each in names for name in each}) == max(map(len, names))
        for found in by_rank.values():
            for place, node in enumerate(found):
                node.label = node.ordinal, node.name if differ and agree else place


def _unite(nodes: Sequence[_Node]) -> dict[tuple[bytes, Hashable], int]:
    """A number for each key; counterparts share a number."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(node.key for node in nodes))}
    parent = list(range(len(numbers)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    for one, other in _counterparts(nodes):
        first, second = sorted((root(numbers[one.key]), root(numbers[other.key])))
        parent[second] = first
    return {key: root(number) for key, number in numbers.items()}


def _counterparts(nodes: Sequence[_Node]) -> Iterator[tuple[_Node, _Node]]:
    """Each communicator with the one that a member's representative has in its place, if it is another."""
    by_rank: dict[int, list[_Node]] = {}
    for node in nodes:
        by_rank.setdefault(node.rank, []).append(node)
    keys = {rank: {node.key for node in found} for rank, found in by_rank.items()}
    for node in nodes:
        captured = set(node.ranks[node.ranks == node.representatives].tolist())
        for representative in sorted(set(node.representatives[node.representatives >= 0].tolist()) - captured):
            if node.key in keys.get(representative, ()):
                continue
            candidates = [other for other in by_rank.get(representative, ()) if _shifted(node, other)]
            if candidates:
                yield node, _choose(node, candidates, by_rank[node.rank])


def _shifted(node: _Node, other: _Node) -> bool:
    """Whether the other has the same shape, and its rank the position of a member that it represents."""
    if len(node.ranks) != len(other.ranks) or node.representatives[other.position] != other.rank:
        return False
    return node.shape() == other.shape()


def _choose(node: _Node, candidates: Sequence[_Node], siblings: Sequence[_Node]) -> _Node:
    if len(candidates) == 1:
        return candidates[0]
    named = [other for other in candidates if other.name == node.name]
    if len(named) == 1:
        return named[0]
    ordinal = [sibling for sibling in siblings if sibling.alike == node.alike].index(node)
    return candidates[min(ordinal, len(candidates) - 1)]
