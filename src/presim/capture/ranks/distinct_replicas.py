"""Groups replicas that behaved the same; the first of each group represents the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from presim.capture.ranks.compare import Fingerprint, describe_difference, fingerprint
from presim.capture.ranks.layout import Layout
from presim.trace.schema import Trace


class DistinctReplicas:
    """The replicas of a world that ran, by number (index of `Layout.origins`), and the kind of each.

    A kind is known by the number of the first replica that was found to be of it.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.origins = layout.origins()
        self.kind: dict[int, int] = {}  # of each replica that ran
        self.traces: dict[int, tuple[Trace, ...]] = {}  # of the first replica of each kind, in the order of its ranks
        self._prints: dict[int, tuple[Fingerprint, ...]] = {}  # likewise

    def add(self, number: int, traces: Sequence[Trace]) -> str:
        """File a replica that ran; returns what it does that the first one does not, empty for a kind that is known."""
        prints = tuple(fingerprint(trace) for trace in traces)
        different = ""
        for kind, known in self._prints.items():
            found = _first_difference(known, prints)
            if found is None:
                self.kind[number] = kind
                return ""
            different = different or describe_difference(self.traces[kind][found[0]], traces[found[0]], found[1])
        self.kind[number] = number
        self.traces[number], self._prints[number] = tuple(traces), prints
        return different

    def gaps(self) -> list[tuple[int, int]]:
        """Neighbouring replicas of different kinds, with replicas between them that did not run."""
        numbers = sorted(self.kind)
        return [
            (before, after)
            for before, after in itertools.pairwise(numbers)
            if self.kind[before] != self.kind[after] and after - before > 1
        ]

    def ranks(self, number: int) -> tuple[int, ...]:
        """Of a replica, in the order of its traces."""
        return self.layout.replica(int(self.origins[number]))

    def captured(self) -> tuple[Trace, ...]:
        """The traces of the first replica of each kind, ascending by rank."""
        found = (trace for traces in self.traces.values() for trace in traces)
        return tuple(sorted(found, key=lambda trace: trace.manifest.rank))

    def stands_for(self) -> dict[int, list[int]]:
        """Captured rank -> the ranks at its place in other replicas of its kind, ascending.

        A replica that did not run is taken to be of the kind of the next lower one that did.
        """
        others: dict[int, list[int]] = {kind: [] for kind in self.traces}
        numbers = sorted(self.kind)
        for number, end in zip(numbers, [*numbers[1:], len(self.origins)]):
            others[self.kind[number]] += range(number, end)
        found: dict[int, list[int]] = {}
        for kind, numbers in others.items():
            origins = self.origins[[number for number in numbers if number != kind]]
            for offset in self.layout.offsets:
                found[int(self.origins[kind]) + offset] = (origins + offset).tolist()
        return {rank: ranks for rank, ranks in found.items() if ranks}

    def compared(self) -> list[int]:
        """Ranks that ran and are of a captured one's kind, ascending."""
        return sorted(rank for number, kind in self.kind.items() if number != kind for rank in self.ranks(number))

    def undecided(self) -> list[int]:
        """Ranks that did not run and lie between two kinds, ascending."""
        numbers = (number for before, after in self.gaps() for number in range(before + 1, after))
        return sorted(rank for number in numbers for rank in self.ranks(number))


def _first_difference(known: Sequence[Fingerprint], prints: Sequence[Fingerprint]) -> tuple[int, int] | None:
    """Place of the first rank that differs, and the entry of the known one where it does; None: they do the same."""
    for place, (mine, theirs) in enumerate(zip(known, prints, strict=True)):
        entry = mine.first_difference(theirs)
        if entry is not None:
            return place, entry
    return None
