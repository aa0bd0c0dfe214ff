"""What a running rank's host takes for what it does: its CPU time, without what disturbs stretches that recur."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from presim.capture.reading.assemble import Tables
from presim.trace.recurring import Recurring
from presim.trace.schema import Kind

Ints = NDArray[np.int64]

_REMEMBERED_NS = 20e6  # CPU time over which the pace is that of the past
_MOST = 2.0  # times of what it needs that a stretch may take without being taken for an interruption


class HostTimes:
    """One rank's; ``recurring``: what is known of the stretches of all of them.

    The first step sets up and counts as it comes, ``as_it_came`` times: it has in it what hosts ordinarily lose, which
    stretches that recur have not.
    """

    def __init__(self, recurring: Recurring | None = None, as_it_came: float = 1.0) -> None:
        self.pace = as_it_came  # what the host takes of late, over the CPU time that passes
        self._recurring = recurring or Recurring()
        self._as_it_came = as_it_came
        self._recurs = False  # the first step is over
        self._entries: dict[tuple[int, ...], int] = {}
        self._last = -1
        self._passed = self._needed = 0.0

    def of(self, records: NDArray[np.void], host_ns: Ints, signature: NDArray[np.generic], tables: Tables) -> Ints:
        """What each of the next records [n] takes of the CPU time [n] that it came with, ns; in whole numbers."""
        result: Ints = np.rint(host_ns * self._as_it_came).astype(np.int64)
        steps = np.flatnonzero(records["kind"] == Kind.STEP)
        begin = 0 if self._recurs else int(steps[0]) + 1 if len(steps) else len(records)
        if begin < len(records):
            stretches = self._stretches(records[begin:], signature[begin:], tables)
            result[begin:] = self._recurring.take(host_ns[begin:], stretches)
            self._look(host_ns[begin:], result[begin:])
        self._recurs |= len(steps) > 0
        return result

    def _look(self, passed: Ints, needed: Ints) -> None:
        """How fast the host's clock goes until more is known; what interrupts it now and then is not its pace."""
        passed_ns = float(np.minimum(passed, _MOST * needed).sum())
        kept = math.exp(-passed_ns / _REMEMBERED_NS)
        self._passed = kept * self._passed + passed_ns
        self._needed = kept * self._needed + float(needed.sum())
        if self._passed > 0:
            self.pace = min(self._needed / self._passed, 1.0)

    def _stretches(self, records: NDArray[np.void], signature: NDArray[np.generic], tables: Tables) -> Ints:
        """Numbers of the stretches that end with records [n]; those of a launch whose operator goes on know it not."""
        found = np.empty(len(records), np.int64)
        names = ("kind", "phase", "op", "scope")
        for place, key in enumerate(zip(signature.tolist(), *(records[name].tolist() for name in names))):
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = self._entry(key, tables)
            found[place] = self._recurring.stretch(self._last, entry)
            self._last = entry
        return found

    def _entry(self, key: tuple[int, ...], tables: Tables) -> int:
        index, kind, phase, *described = key
        signature = list(tables.signatures)[index] if index >= 0 else None
        operator, scope = (tables.name(number) for number in described)
        return self._recurring.entry(kind, phase, signature, operator, scope)
