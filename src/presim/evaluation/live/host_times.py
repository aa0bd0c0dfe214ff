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

_REMEMBERED_NS = 20e6  # CPU time over which earlier ratios of host to CPU time decay
_MOST = 2.0  # multiple of its noise-free time beyond which a stretch counts as interrupted


class LiveHostTimes:
    """Host times of one rank.

    Args:
        recurring: noise-free times of recurring stretches, shared by all ranks.
        as_it_came: factor of host time in the first step. That step is not denoised, so its times already contain the
            delays that hosts ordinarily have.
    """

    def __init__(self, recurring: HostNoise | None = None, as_it_came: float = 1.0) -> None:
        self.host_per_cpu = as_it_came  # recent host time over CPU time
        self._recurring = recurring or HostNoise()
        self._machine = CaptureSpeed()
        self._ends: dict[int, tuple[int, int, str, str]] = {}  # kind, phase, operator and module of entries
        self._references: dict[tuple[int, int], float] = {}  # times of stretches by the entries at both ends
        self._as_it_came = as_it_came
        self._recurs = False  # the first step is over
        self._entries: dict[tuple[int, ...], int] = {}
        self._last = -1
        self._last_untagged = -1  # the last entry that is no RETAG
        self._tagging_ns = 0  # time of RETAG entries since then
        self._last_signature = -1
        self._passed = self._needed = 0.0

    def host_times_ns(
        self, records: NDArray[np.void], host_ns: Ints, signature: NDArray[np.generic], tables: Tables
    ) -> Ints:
        """Host time [n] of the next records [n], ns, from the CPU time [n] before each."""
        steps = np.flatnonzero(records["kind"] == Kind.STEP)
        begin = 0 if self._recurs else int(steps[0]) + 1 if len(steps) else len(records)
        if not begin:
            return self._recurring_times_ns(records, host_ns, signature, tables)
        setup, from_first_step = slice(0, begin), slice(begin, len(records))
        self._stretches(records[setup], host_ns[setup], signature[setup], tables)
        self.host_per_cpu = self._as_it_came / self._machine.slowdown
        unslowed_ns = without_slowdown(host_ns[setup], self._machine.slowdown)
        result: Ints = np.rint(unslowed_ns * self._as_it_came).astype(np.int64)
        if not len(steps):
            return result
        self._recurs, self._machine = True, CaptureSpeed()  # code that runs for the first time is not representative
        return np.concatenate(
            (
                result,
                self._recurring_times_ns(
                    records[from_first_step], host_ns[from_first_step], signature[from_first_step], tables
                ),
            )
        )

    def _recurring_times_ns(
        self, records: NDArray[np.void], host_ns: Ints, signature: NDArray[np.generic], tables: Tables
    ) -> Ints:
        """The same after the first step."""
        stretches = self._stretches(records, host_ns, signature, tables)
        unslowed_ns = without_slowdown(host_ns, self._machine.slowdown)
        result = self._recurring.take(unslowed_ns, stretches)
        self._update_ratio(unslowed_ns, result)
        return result

    def _update_ratio(self, passed: Ints, needed: Ints) -> None:
        """Update the ratio of host time to CPU time; interruptions do not count.

        ``passed``: times [n] with the machine's slowdown removed, ns; ``needed``: the same without noise.
        """
        passed_ns = float(np.minimum(passed, _MOST * needed).sum())
        decay = math.exp(-passed_ns / _REMEMBERED_NS)
        self._passed = decay * self._passed + passed_ns
        self._needed = decay * self._needed + float(needed.sum())
        if self._passed > 0:
            self.host_per_cpu = min(self._needed / self._passed, 1.0) / self._machine.slowdown

    def _stretches(
        self, records: NDArray[np.void], host_ns: Ints, signature: NDArray[np.generic], tables: Tables
    ) -> Ints:
        """Numbers of the stretches that end with records [n]; known stretches update the machine's slowdown."""
        stretches, references = np.empty(len(records), np.int64), np.zeros(len(records))
        times = host_ns.copy()
        names = ("kind", "phase", "op", "scope")
        signatures = signature.astype(np.int64)
        entry_signatures = waited_for(records["kind"].astype(np.int64), signatures, self._last_signature)
        if (signatures >= 0).any():
            self._last_signature = int(signatures[signatures >= 0][-1])
        keys = zip(entry_signatures.tolist(), *(records[name].tolist() for name in names))
        for index, stretch_end in enumerate(keys):
            entry = self._entries.get(stretch_end)
            if entry is None:
                entry = self._entries[stretch_end] = self._entry(stretch_end, tables)
            stretches[index] = self._recurring.stretch(self._last, entry)
            self._last = entry
            if stretch_end[1] == Kind.RETAG:
                self._tagging_ns += int(times[index])
                times[index] = 0
                continue
            references[index] = self._reference(self._last_untagged, entry)
            times[index] += self._tagging_ns
            self._last_untagged, self._tagging_ns = entry, 0
        self._machine.add(times, references)
        return stretches

    def _reference(self, before: int, entry: int) -> float:
        """Time of the stretch between two entries on an idle machine, ns; 0: unknown."""
        reference = self._references.get((before, entry))
        if reference is None:
            kind, phase, operator, module = self._ends[entry]
            began, _, operator_before, _ = self._ends.get(before, (-1, 0, "", ""))
            name = key(began, operator_before, kind, operator, phase, module) if began >= 0 else ""
            reference = self._references[before, entry] = reference_ns().get(name, 0.0)
        return reference

    def _entry(self, stretch_end: tuple[int, ...], tables: Tables) -> int:
        index, kind, phase, *described = stretch_end
        signature = list(tables.signatures)[index] if index >= 0 else None
        operator, scope = (tables.name(number) for number in described)
        entry = self._recurring.entry(kind, phase, signature, operator, scope)
        self._ends[entry] = (kind, phase, operator or "", scope or "")
        return entry
