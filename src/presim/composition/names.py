"""Numbers for one rank's memory blocks and events, so that lifetimes are computed over arrays.

A storage of a graph block has consecutive numbers for all micro-batches. Everything else is numbered below zero in
order of appearance. `Names.dense` maps both ranges to one range from 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from presim.composition.schedule import Key

Ints = NDArray[np.int64]
NOTHING = -1  # no name: it exists before the step
_STORAGE = 5  # length of a storage key: micro-batch, segment, block, recomputed, value


class Names:
    """Numbers by key."""

    def __init__(self, micros: int) -> None:
        self.micros = max(1, micros)
        self._storages: dict[Key, int] = {}
        self._others: dict[Key, int] = {}
        self._count = 0  # count of other names, including those without a key
        self.of_runs: dict[Key, Ints] = {}  # names of the values of a block in the first micro-batch

    @property
    def storages(self) -> int:
        """Number of dense numbers that are storages: each storage has one per micro-batch."""
        return len(self._storages) * self.micros

    @property
    def size(self) -> int:
        """Total count of dense numbers."""
        return self.storages + self._count

    def of(self, keys: Iterable[Key | None]) -> Ints:
        """The number of each key; `NOTHING` for None."""
        return np.array([NOTHING if key is None else self._number(key) for key in keys], np.int64)

    def new(self, count: int) -> Ints:
        """Fresh numbers without a key."""
        first = self._count
        self._count += count
        return NOTHING - 1 - np.arange(first, self._count)

    def dense(self, numbers: Ints) -> Ints:
        """Map numbers to 0..size-1; `NOTHING` becomes `size`."""
        other_numbers = self.storages - 2 - numbers
        return np.where(numbers >= 0, numbers, np.where(numbers == NOTHING, self.size, other_numbers))

    def _number(self, key: Key) -> int:
        if len(key) == _STORAGE and isinstance(key[0], int):
            return self._storages.setdefault(key[1:], len(self._storages)) * self.micros + key[0]
        number = self._others.get(key)
        if number is None:
            number = self._others[key] = self._count
            self._count += 1
        return NOTHING - 1 - number
