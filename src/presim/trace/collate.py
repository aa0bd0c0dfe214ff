"""Identifies communicators of several captured ranks that are the same one, or that behave alike.

A captured rank may stand for others, so the members of its communicators are looked at by who stands for them:

1. Communicators whose members are represented alike, position by position, are one. Pipeline groups (0, 8) and (4, 12)
   are, where rank 0 stands for 4 and rank 12 for 8.
2. Where a member's representative has no such communicator, its own of the same shape (the same ranks, shifted so that
   it has the member's place) is taken for it. So ranks 8 and 15 of a stage whose last shard is uneven both meet rank
   0, which stands for their peers 0 and 7.

Several communicators of the same members are told apart by their names, if the ranks agree on those, else by the
order in which the ranks made them. (Names come first because communicators are made when they are first used, and
pipeline stages use them in orders of their own.)

What a captured rank is a member of, it must join. A rank that nobody stands for is never waited for.
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

    communicator: int  # the same number for all that are one
    rank: int
    ranks: Ints  # global ranks, by position
    voices: Ints  # by position: the captured rank that stands for it; negative: nobody does


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
        for node in known:  # who belongs to it and never calls has a seat as well: it is waited for
            seats = self._seats[self._numbers[node.key]]
            for captured in set(node.voices[node.ranks == node.voices].tolist()):
                seats.setdefault(captured, int(np.flatnonzero(node.ranks == captured)[0]))

    def _place(self, node: _Node) -> Place | None:
        if not node.is_member:
            return None
        number = self._numbers[node.key]
        self._seats.setdefault(number, {})[node.rank] = node.position
        return Place(number, node.rank, node.ranks, node.voices)

    def places(self, rank: int) -> list[Place | None]:
        """By group of a captured rank's manifest; None where its members are not known."""
        return self._places[rank]

    def members(self, communicator: int) -> tuple[int, ...]:
        """The captured ranks that meet in a communicator."""
        return tuple(sorted(self._seats[communicator]))

    def own_seat(self, place: Place) -> int:
        """Where the place's own rank sits."""
        return self._seats[place.communicator][place.rank]

    def seat(self, place: Place, position: int) -> int | None:
        """Where the captured rank sits that stands for a position; None: nobody does, or the place's own rank."""
        voice = int(place.voices[position])
        if voice < 0 or voice == place.rank:
            return None
        return self._seats[place.communicator].get(voice)

    def unmatched(self, place: Place) -> tuple[int, int] | None:
        """A member and the captured rank that stands for it, where that one has no such communicator; else None."""
        seats = self._seats[place.communicator]
        for voice in np.unique(place.voices[place.voices >= 0]).tolist():
            if voice != place.rank and voice not in seats:
                return int(place.ranks[place.voices == voice][0]), voice
        return None

    def seated(self, communicator: int, *positions: int) -> tuple[int, ...]:
        """The captured ranks at some positions."""
        return tuple(sorted(rank for rank, seat in self._seats[communicator].items() if seat in positions))


class _Node:
    """One group of one trace."""

    def __init__(self, trace: Trace, group: Group, representatives: Representatives) -> None:
        self.rank = trace.manifest.rank
        self.name = group.name
        self.ranks = np.array(group.ranks, np.int64)
        self.voices = representatives.of(self.ranks)
        self.alike = self.voices.tobytes()  # equal where the members are represented alike
        self.label: Hashable = 0  # tells communicators of the same members apart
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
    """By name where the names of a rank's alike communicators differ and agree between ranks; else by order."""
    alike: dict[bytes, dict[int, list[_Node]]] = {}
    for node in nodes:
        alike.setdefault(node.alike, {}).setdefault(node.rank, []).append(node)
    for by_rank in alike.values():
        names = [[node.name for node in found] for found in by_rank.values()]
        differ = all(len(set(each)) == len(each) for each in names)
        agree = len({name for each in names for name in each}) == max(map(len, names))
        for found in by_rank.values():
            for ordinal, node in enumerate(found):
                node.label = node.name if differ and agree else ordinal


def _unite(nodes: Sequence[_Node]) -> dict[tuple[bytes, Hashable], int]:
    """A number for each key; keys of counterparts have the same."""
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
    """For each communicator what the representatives of its members have in its place, if it is not the same."""
    by_rank: dict[int, list[_Node]] = {}
    for node in nodes:
        by_rank.setdefault(node.rank, []).append(node)
    keys = {rank: {node.key for node in found} for rank, found in by_rank.items()}
    for node in nodes:
        captured = set(node.ranks[node.ranks == node.voices].tolist())
        for voice in sorted(set(node.voices[node.voices >= 0].tolist()) - captured):
            if node.key in keys.get(voice, ()):
                continue
            candidates = [other for other in by_rank.get(voice, ()) if _shifted(node, other)]
            if candidates:
                yield node, _choose(node, candidates, by_rank[node.rank])


def _shifted(node: _Node, other: _Node) -> bool:
    """Whether the other has the same shape, and its rank the place of a member that it stands for."""
    if len(node.ranks) != len(other.ranks) or node.voices[other.position] != other.rank:
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
