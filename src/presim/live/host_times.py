"""Host time of a running rank: its CPU time without disturbance by other processes.

`capture_speed.on_idle_machine` and `host_noise.without_host_noise` do the same to a whole trace; this module uses what
is known so far.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from presim.capture.reading.assemble import Tables
from presim.trace.capture_speed import CaptureSpeed, key, reference_ns, without_slowdown
from presim.trace.host_noise import HostNoise, waited_for
from presim.trace.schema import Kind

Ints = NDArray[np.int64]

_REMEMBERED_NS = 20e6  # CPU time over which the pace is that of the past
_MOST = 2.0  # times of what it needs that a stretch may take without being taken for an interruption


class HostTimes:
    """One rank's; ``recurring``: what is known of the stretches of all of them.

    The first step sets up and counts as it comes, ``as_it_came`` times: it has in it what hosts ordinarily lose, which
    stretches that recur have not.
    """

    def __init__(self, recurring: HostNoise | None = None, as_it_came: float = 1.0) -> None:
        self.pace = as_it_came  # what the host takes of late, over the CPU time that passes
        self._recurring = recurring or HostNoise()
        self._machine = CaptureSpeed()
        self._ends: dict[int, tuple[int, int, str, str]] = {}  # kind, phase, operator and module of entries
        self._references: dict[tuple[int, int], float] = {}  # times of stretches by the entries at both ends
        self._as_it_came = as_it_came
        self._recurs = False  # the first step is over
        self._entries: dict[tuple[int, ...], int] = {}
        self._last = -1
        self._told = -1  # the last that tags no block
        self._tagging_ns = 0  # since then
        self._asked_for = -1  # the last signature
        self._passed = self._needed = 0.0

    def of(self, records: NDArray[np.void], host_ns: Ints, signature: NDArray[np.generic], tables: Tables) -> Ints:
        """What each of the next records [n] takes of the CPU time [n] that it came with, ns; in whole numbers."""
        steps = np.flatnonzero(records["kind"] == Kind.STEP)
        begin = 0 if self._recurs else int(steps[0]) + 1 if len(steps) else len(records)
        if not begin:
            return self._of(records, host_ns, signature, tables)
        setup, rest = slice(0, begin), slice(begin, len(records))
        self._stretches(records[setup], host_ns[setup], signature[setup], tables)
        self.pace = self._as_it_came / self._machine.slowdown
        came = without_slowdown(host_ns[setup], self._machine.slowdown)
        result: Ints = np.rint(came * self._as_it_came).astype(np.int64)
        if not len(steps):
            return result
        self._recurs, self._machine = True, CaptureSpeed()  # what ran for the first time tells nothing of what follows
        return np.concatenate((result, self._of(records[rest], host_ns[rest], signature[rest], tables)))

    def _of(self, records: NDArray[np.void], host_ns: Ints, signature: NDArray[np.generic], tables: Tables) -> Ints:
        """The same of what may recur."""
        stretches = self._stretches(records, host_ns, signature, tables)
        alone = without_slowdown(host_ns, self._machine.slowdown)
        result = self._recurring.take(alone, stretches)
        self._look(alone, result)
        return result

    def _look(self, passed: Ints, needed: Ints) -> None:
        """How fast the host's clock goes until more is known; what interrupts it now and then is not its pace.

        ``passed`` is time of the machine alone.
        """
        passed_ns = float(np.minimum(passed, _MOST * needed).sum())
        kept = math.exp(-passed_ns / _REMEMBERED_NS)
        self._passed = kept * self._passed + passed_ns
        self._needed = kept * self._needed + float(needed.sum())
        if self._passed > 0:
            self.pace = min(self._needed / self._passed, 1.0) / self._machine.slowdown

    def _stretches(
        self, records: NDArray[np.void], host_ns: Ints, signature: NDArray[np.generic], tables: Tables
    ) -> Ints:
        """Numbers of the stretches that end with records [n]; those that are known tell how fast the machine is."""
        found, references = np.empty(len(records), np.int64), np.zeros(len(records))
        times = host_ns.copy()
        names = ("kind", "phase", "op", "scope")
        asked_for = signature.astype(np.int64)
        known = waited_for(records["kind"].astype(np.int64), asked_for, self._asked_for)
        if (asked_for >= 0).any():
            self._asked_for = int(asked_for[asked_for >= 0][-1])
        keys = zip(known.tolist(), *(records[name].tolist() for name in names))
        for place, ends in enumerate(keys):
            entry = self._entries.get(ends)
            if entry is None:
                entry = self._entries[ends] = self._entry(ends, tables)
            found[place] = self._recurring.stretch(self._last, entry)
            self._last = entry
            if ends[1] == Kind.RETAG:
                self._tagging_ns += int(times[place])
                times[place] = 0
                continue
            references[place] = self._reference(self._told, entry)
            times[place] += self._tagging_ns
            self._told, self._tagging_ns = entry, 0
        self._machine.add(times, references)
        return found

    def _reference(self, before: int, entry: int) -> float:
        """What the stretch between two entries takes on a machine alone, ns; 0: that is not known."""
        reference = self._references.get((before, entry))
        if reference is None:
            kind, phase, operator, module = self._ends[entry]
            began, _, operator_before, _ = self._ends.get(before, (-1, 0, "", ""))
            name = key(began, operator_before, kind, operator, phase, module) if began >= 0 else ""
            reference = self._references[before, entry] = reference_ns().get(name, 0.0)
        return reference

    def _entry(self, ends: tuple[int, ...], tables: Tables) -> int:
        index, kind, phase, *described = ends
        signature = list(tables.signatures)[index] if index >= 0 else None
        operator, scope = (tables.name(number) for number in described)
        entry = self._recurring.entry(kind, phase, signature, operator, scope)
        self._ends[entry] = (kind, phase, operator or "", scope or "")
        return entry
