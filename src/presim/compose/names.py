"""Numbers for the blocks of memory and the events of one rank, so that what lives where is counted over arrays.

A storage of a block of the graph has consecutive numbers for the micro-batches; everything else is numbered as it
comes, below zero. `Names.dense` lays both end to end.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from presim.compose.schedule import Key

Ints = NDArray[np.int64]
NOTHING = -1  # of what is there before the step
_STORAGE = 5  # parts of a storage's key: micro-batch, segment, block, whether it is recomputed, value


class Names:
    """Numbers by key."""

    def __init__(self, micros: int) -> None:
        self.micros = max(1, micros)
        self._storages: dict[Key, int] = {}
        self._others: dict[Key, int] = {}
        self._count = 0  # of others, those without a key too
        self.of_runs: dict[Key, Ints] = {}  # what the values of a block mean, in the first micro-batch

    @property
    def storages(self) -> int:
        """Dense numbers below this are of storages, of which each has as many as there are micro-batches."""
        return len(self._storages) * self.micros

    @property
    def size(self) -> int:
        """How many there are."""
        return self.storages + self._count

    def of(self, keys: Iterable[Key | None]) -> Ints:
        """The number of each key; `NOTHING` for None."""
        return np.array([NOTHING if key is None else self._number(key) for key in keys], np.int64)

    def new(self, count: int) -> Ints:
        """Numbers that nothing else has."""
        first = self._count
        self._count += count
        return NOTHING - 1 - np.arange(first, self._count)

    def dense(self, numbers: Ints) -> Ints:
        """The numbers from 0; `NOTHING` becomes `size`."""
        others = self.storages - 2 - numbers
        return np.where(numbers >= 0, numbers, np.where(numbers == NOTHING, self.size, others))

    def _number(self, key: Key) -> int:
        if len(key) == _STORAGE and isinstance(key[0], int):
            return self._storages.setdefault(key[1:], len(self._storages)) * self.micros + key[0]
        known = self._others.get(key)
        if known is None:
            known = self._others[key] = self._count
            self._count += 1
        return NOTHING - 1 - known
