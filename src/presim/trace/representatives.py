"""Maps each rank of the world to the captured rank that represents it; symmetric ranks are simulated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError

Ints = NDArray[np.int64]


class Representatives:
    """The captured ranks of a job, each with the ranks that do as it does.

    ``stands_for``: captured rank -> the other ranks it stands for. A rank may be in none: nothing is known of it.
    """

    def __init__(self, captured: Sequence[int], stands_for: Mapping[int, Sequence[int]] | None = None) -> None:
        self.captured = tuple(sorted(captured))
        self.others = {rank: tuple(others) for rank, others in (stands_for or {}).items() if others}
        _check(self.captured, self.others)
        ranks = np.array([*self.captured, *(other for others in self.others.values() for other in others)], np.int64)
        voices = np.repeat(
            np.array([*self.captured, *self.others], np.int64),
            [*(1 for _ in self.captured), *(len(others) for others in self.others.values())],
        )
        order = np.argsort(ranks, kind="stable")
        self._ranks, self._voices = ranks[order], voices[order]
        twice = np.flatnonzero(self._ranks[1:] == self._ranks[:-1])
        if len(twice):
            rank, (first, second) = self._ranks[twice[0]], sorted(self._voices[twice[0] : twice[0] + 2].tolist())
            raise InputError(f"ranks {first} and {second} both stand for rank {rank}; capture the job again")

    def of(self, ranks: Sequence[int] | Ints) -> Ints:
        """The captured rank that stands for each of these; ``-1 - rank`` where none does."""
        wanted = np.asarray(ranks, np.int64)
        if not len(self._ranks):
            return -1 - wanted
        at = np.minimum(np.searchsorted(self._ranks, wanted), len(self._ranks) - 1)
        result: Ints = np.where(self._ranks[at] == wanted, self._voices[at], -1 - wanted)
        return result

    def count(self, rank: int) -> int:
        """How many ranks a captured rank stands for, itself included."""
        return 1 + len(self.others.get(rank, ()))

    @property
    def represented(self) -> int:
        """Ranks of the world that are captured or stood for."""
        return len(self._ranks)


def _check(captured: Sequence[int], others: Mapping[int, Sequence[int]]) -> None:
    strangers = sorted(set(others) - set(captured))
    if strangers:
        raise InputError(f"rank {strangers[0]} stands for others and was not captured; capture the job again")
