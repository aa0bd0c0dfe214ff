"""Host time of recurring parts of a step, without noise from the machine.

`without_host_noise` works on whole traces, `HostNoise` on what running ranks have sent so far.
Both use `undisturbed`.

A steady step holds the same stretch of host work many times: in each layer, micro-batch, step and rank. Its times
differ where other processes had the caches or the core, where pages were brought in or a garbage collector ran. A
stretch is taken to need the mean of its times, each of which counts half above the shortest tenth of them at most.
What a host does behind a wait depends on what it waited for: a wait is known by the last work before it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import WAITS, Trace

Ints = NDArray[np.int64]

_LEAST_TIMES = 8  # rarer stretches are unchanged: they may do different work each time
_UNDISTURBED = 0.1  # share of times that are assumed to be undisturbed
_MOST = 1.5  # multiple of the longest undisturbed time; the rest is noise (docs/decisions/host-factor.md)
_KEPT = 128  # latest times of a stretch that `HostNoise` keeps
_SO_FAR = 2  # a stretch that occurred this often is expected in every step
_MORE = 16  # it looks at them anew when there is one more for each so many
_STRETCHES = 1 << 15  # stretches in memory: 16 MiB of times
_TABLES = ("signature", "operator", "scope")  # columns with places in tables of their trace


def without_host_noise(traces: Sequence[Trace]) -> list[Trace]:
    """The same traces with ``host_ns`` [entry] of the same stretches equal, and without what disturbed them.

    Stretches are the same where the entries at both ends are: kind, phase, signature (of a wait, what it `waited_for`),
    operator, and the module but for numbers in its name; on whichever rank of the job, for its hosts are alike. The
    first step sets up and stays as it is, and so does what is outside of steps; a stretch whose times are equal keeps
    them. A trace in CPU time of another host than the reference one is left alone.
    """
    result = list(traces)
    parts = [
        (place, trace, slice(steps[1].start, steps[-1].stop))
        for place, trace in enumerate(result)
        if len(steps := trace.steps()) >= 2 and trace.manifest.reference_host
    ]
    if not parts:
        return result
    times = [trace.columns["host_ns"][part].astype(np.int64) for _, trace, part in parts]
    stretch = _stretches([(trace, part) for _, trace, part in parts])
    needs = np.split(undisturbed(np.concatenate(times), stretch), np.cumsum([len(each) for each in times])[:-1])
    for (place, trace, part), mine in zip(parts, needs):
        host_ns = trace.columns["host_ns"].astype(np.int64)
        host_ns[part] = mine
        result[place] = dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})
    return result


def undisturbed(times: Ints, stretch: Ints, least: int = _LEAST_TIMES) -> Ints:
    """Each time [n] without noise, ns, for stretches with at ``least`` so many times.

    ``stretch`` [n]: index of the stretch.
    """
    counts = np.bincount(stretch)
    first = np.cumsum(counts) - counts
    ordered = times[np.lexsort((times, stretch))]
    shortest = ordered[first + (_UNDISTURBED * (counts - 1)).astype(np.int64)]
    needs = np.rint(np.bincount(stretch, np.minimum(times, _MOST * shortest[stretch])) / counts).astype(np.int64)
    result: Ints = np.where(counts[stretch] >= least, needs[stretch], times)
    return result


def waited_for(kind: Ints, signature: Ints, earlier: int = -1) -> Ints:
    """The signature of each entry [n], that of the last work before it for a wait; -1: none.

    ``earlier``: the last signature before these entries.
    """
    known = np.concatenate(([earlier], signature))
    last = np.maximum.accumulate(np.where(known >= 0, np.arange(len(known)), 0))[1:]
    result: Ints = np.where(np.isin(kind, WAITS), known[last], signature)
    return result


class HostNoise:
    """Noise-free times of stretches, updated while entries arrive, over all ranks of a job."""

    def __init__(self) -> None:
        self._whats: dict[Hashable, int] = {}
        self._stretches: dict[tuple[int, int], int] = {}
        self._times = np.zeros((64, _KEPT), np.uint32)  # [stretch, place], each one after the other, and around again
        self._needs = np.zeros(64, np.int64)
        self._counts = np.zeros(64, np.int64)
        self._due = np.full(64, _SO_FAR, np.int64)  # at which count they are looked at

    def entry(self, kind: int, phase: int, signature: Hashable, operator: str | None, scope: str | None) -> int:
        """A number for the entry at an end of a stretch."""
        what = (kind, phase, signature, operator, None if scope is None else _module(scope))
        return self._whats.setdefault(what, len(self._whats))

    def stretch(self, before: int, entry: int) -> int:
        """The number of the stretch between two entries; -1: there are too many to know this one."""
        known = self._stretches.get((before, entry), -1)
        if known < 0 and len(self._stretches) < _STRETCHES:
            known = self._stretches[before, entry] = len(self._stretches)
        return known

    def take(self, times: Ints, stretch: Ints) -> Ints:
        """Of each new time [n] what its stretch needs as `undisturbed` says it of those known by now, ns."""
        result = times.copy()
        known = np.flatnonzero(stretch >= 0)
        if not len(known):
            return result
        mine, times = stretch[known], times[known]
        self._reserve(len(self._stretches))
        order = np.argsort(mine, kind="stable")
        found, first, count = np.unique(mine[order], return_index=True, return_counts=True)
        nth = np.arange(len(mine)) - np.repeat(first, count)
        ordered = mine[order]
        self._times[ordered, (self._counts[ordered] + nth) % _KEPT] = np.minimum(times[order], np.iinfo(np.uint32).max)
        self._counts[found] += count
        self._look(found[self._counts[found] >= self._due[found]])
        result[known] = np.where(self._counts[mine] >= _SO_FAR, self._needs[mine], times)
        return result

    def _look(self, stretches: Ints) -> None:
        if not len(stretches):
            return
        counts = np.minimum(self._counts[stretches], _KEPT)
        held = self._times[stretches][np.arange(_KEPT) < counts[:, None]].astype(np.int64)
        needs = undisturbed(held, np.repeat(np.arange(len(stretches)), counts), _SO_FAR)
        self._needs[stretches] = needs[np.cumsum(counts) - counts]
        self._due[stretches] = self._counts[stretches] + np.maximum(1, counts // _MORE)

    def _reserve(self, size: int) -> None:
        while len(self._counts) < size:
            self._times = np.concatenate((self._times, np.zeros_like(self._times)))
            self._needs, self._counts = (np.concatenate((each, 0 * each)) for each in (self._needs, self._counts))
            self._due = np.concatenate((self._due, np.full_like(self._due, _SO_FAR)))


def _module(scope: str) -> str:
    return re.sub(r"\d+", "#", scope)


def _stretches(parts: Sequence[tuple[Trace, slice]]) -> Ints:
    """For each entry of the parts, one after the other, which stretch ends with it, counted from 0."""
    numbers: dict[Hashable, int] = {}
    columns = [_named(trace, part, numbers) for trace, part in parts]
    kind, phase, signature, operator, scope = (np.concatenate(column) for column in zip(*columns))
    what = _together(_together(kind, phase), _together(signature, operator), scope)
    before = np.concatenate(([0], what[:-1]))
    before[np.cumsum([0, *(len(column[0]) for column in columns[:-1])])] = what.max() + 1  # a part begins
    return _together(what, before)


def _named(trace: Trace, part: slice, numbers: dict[Hashable, int]) -> list[Ints]:
    """Kind, phase, signature, operator and module of each entry of the part, by numbers that traces share."""
    columns = {name: trace.columns[name][part].astype(np.int64) for name in ("kind", "phase", *_TABLES)}
    columns["signature"] = waited_for(columns["kind"], columns["signature"])
    modules = [_module(scope) for scope in trace.scopes]
    for name, table in zip(_TABLES, (trace.signatures, trace.operators, modules)):
        number = [numbers.setdefault((name, value), len(numbers)) for value in (*table, None)]  # -1, the last: none
        columns[name] = np.array(number, np.int64)[columns[name]]
    return list(columns.values())


def _together(*keys: Ints) -> Ints:
    """One number for each combination [n] of numbers that are not negative."""
    result = keys[0]
    for key in keys[1:]:
        result = np.unique(result * (int(key.max()) + 1) + key, return_inverse=True)[1].reshape(-1)
    return result
