"""Group replicas that behaved the same; the first of each group represents the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from presim.capture.ranks.rank_comparison import Fingerprint, describe_difference, fingerprint
from presim.capture.ranks.rank_grid import ReplicatedWorld
from presim.trace.schema import Trace


class DistinctReplicas:
    """The replicas of a world that ran, by number (index into `ReplicatedWorld.origins`), and the kind of each.

    A kind is identified by the number of its first replica.
    """

    def __init__(self, layout: ReplicatedWorld) -> None:
        self.layout = layout
        self.origins = layout.origins()
        self.kind: dict[int, int] = {}  # replica that ran -> its kind
        self.traces: dict[int, tuple[Trace, ...]] = {}  # kind -> the traces of its first replica, in rank order
        self._prints: dict[int, tuple[Fingerprint, ...]] = {}  # kind -> their fingerprints

    def add(self, number: int, traces: Sequence[Trace]) -> str:
        """Add a replica that ran; returns how it differs from the first, or an empty string if its kind is known."""
        prints = tuple(fingerprint(trace) for trace in traces)
        different = ""
        for kind, kind_prints in self._prints.items():
            difference = _first_difference(kind_prints, prints)
            if difference is None:
                self.kind[number] = kind
                return ""
            different = different or describe_difference(
                self.traces[kind][difference[0]], traces[difference[0]], difference[1]
            )
        self.kind[number] = number
        self.traces[number], self._prints[number] = tuple(traces), prints
        return different

    def gaps(self) -> list[tuple[int, int]]:
        """Pairs of consecutive replicas that ran and differ, with replicas between them that did not run."""
        numbers = sorted(self.kind)
        return [
            (before, after)
            for before, after in itertools.pairwise(numbers)
            if self.kind[before] != self.kind[after] and after - before > 1
        ]

    def ranks(self, number: int) -> tuple[int, ...]:
        """The ranks of a replica, in the order of its traces."""
        return self.layout.replica(int(self.origins[number]))

    def captured(self) -> tuple[Trace, ...]:
        """The traces of the first replica of each kind, ascending by rank."""
        kind_traces = (trace for traces in self.traces.values() for trace in traces)
        return tuple(sorted(kind_traces, key=lambda trace: trace.manifest.rank))

    def stands_for(self) -> dict[int, list[int]]:
        """Captured rank -> the ranks at its place in other replicas of its kind, ascending.

        A replica that did not run is assumed to be of the kind of the next lower one that did.
        """
        replicas_by_kind: dict[int, list[int]] = {kind: [] for kind in self.traces}
        numbers = sorted(self.kind)
        for number, end in zip(numbers, [*numbers[1:], len(self.origins)]):
            replicas_by_kind[self.kind[number]] += range(number, end)
        ranks_by_captured_rank: dict[int, list[int]] = {}
        for kind, numbers in replicas_by_kind.items():
            origins = self.origins[[number for number in numbers if number != kind]]
            for offset in self.layout.offsets:
                ranks_by_captured_rank[int(self.origins[kind]) + offset] = (origins + offset).tolist()
        return {rank: ranks for rank, ranks in ranks_by_captured_rank.items() if ranks}

    def compared(self) -> list[int]:
        """Ranks that ran and are represented by a captured one, ascending."""
        return sorted(rank for number, kind in self.kind.items() if number != kind for rank in self.ranks(number))

    def undecided(self) -> list[int]:
        """Ranks that did not run and lie between two different kinds, ascending."""
        numbers = (number for before, after in self.gaps() for number in range(before + 1, after))
        return sorted(rank for number in numbers for rank in self.ranks(number))


def _first_difference(kind_prints: Sequence[Fingerprint], prints: Sequence[Fingerprint]) -> tuple[int, int] | None:
    """Index of the first rank that differs from its kind's, and its first differing entry; None if all agree."""
    for index, (mine, theirs) in enumerate(zip(kind_prints, prints, strict=True)):
        entry = mine.first_difference(theirs)
        if entry is not None:
            return index, entry
    return None
