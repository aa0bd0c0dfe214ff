"""Maps each rank of the world to the captured rank that represents it; symmetric ranks are simulated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError

Ints = NDArray[np.int64]


class Representatives:
    """The captured ranks of a job, each with the ranks that it represents.

    ``stands_for``: captured rank -> the other ranks that it represents. A rank in none of them is unknown.
    """

    def __init__(self, captured: Sequence[int], stands_for: Mapping[int, Sequence[int]] | None = None) -> None:
        self.captured = tuple(sorted(captured))
        self.others = {
            rank: tuple(represented_ranks)
            for rank, represented_ranks in (stands_for or {}).items()
            if represented_ranks
        }
        _check_captured(self.captured, self.others)
        ranks = np.array(
            [*self.captured, *(other for represented_ranks in self.others.values() for other in represented_ranks)],
            np.int64,
        )
        representatives = np.repeat(
            np.array([*self.captured, *self.others], np.int64),
            [*(1 for _ in self.captured), *(len(represented_ranks) for represented_ranks in self.others.values())],
        )
        order = np.argsort(ranks, kind="stable")
        self._ranks, self._representatives = ranks[order], representatives[order]
        twice = np.flatnonzero(self._ranks[1:] == self._ranks[:-1])
        if len(twice):
            rank, (first, second) = (
                self._ranks[twice[0]],
                sorted(self._representatives[twice[0] : twice[0] + 2].tolist()),
            )
            raise InputError(f"ranks {first} and {second} both represent rank {rank}; capture the job again")

    def of(self, ranks: Sequence[int] | Ints) -> Ints:
        """The captured rank that represents each rank; ``-1 - rank`` if there is none."""
        requested_ranks = np.asarray(ranks, np.int64)
        if not len(self._ranks):
            return -1 - requested_ranks
        positions = np.minimum(np.searchsorted(self._ranks, requested_ranks), len(self._ranks) - 1)
        result: Ints = np.where(
            self._ranks[positions] == requested_ranks, self._representatives[positions], -1 - requested_ranks
        )
        return result

    def count(self, rank: int) -> int:
        """Number of ranks that a captured rank represents, itself included."""
        return 1 + len(self.others.get(rank, ()))

    @property
    def represented(self) -> int:
        """Number of ranks of the world that are captured or represented."""
        return len(self._ranks)


def _check_captured(captured: Sequence[int], represented_by: Mapping[int, Sequence[int]]) -> None:
    unknown = sorted(set(represented_by) - set(captured))
    if unknown:
        raise InputError(f"rank {unknown[0]} represents others and was not captured; capture the job again")
