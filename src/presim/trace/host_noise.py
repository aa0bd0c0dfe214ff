"""Host time of recurring parts of a step, without noise from the machine.

`without_host_noise` works on whole traces, `HostNoise` on what running ranks have sent so far.
Both use `undisturbed`.

A steady step repeats the same stretch of host work many times: in each layer, micro-batch, step and rank. Its times
differ because of other processes, page faults and garbage collection. The noise-free time is the mean of the times,
each limited to 1.5 times their 10th percentile. Host work after a wait depends on what was waited for, so a wait is
identified by the last work before it.
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
_MORE = 16  # times are evaluated again when their number has grown by one in so many
_STRETCHES = 1 << 15  # stretches in memory: 16 MiB of times
_TABLES = ("signature", "operator", "scope")  # columns with places in tables of their trace


def without_host_noise(traces: Sequence[Trace]) -> list[Trace]:
    """The traces with noise removed from ``host_ns`` [entry]; equal stretches get equal times.

    Stretches are equal if the entries at both ends agree in kind, phase, signature (for a wait: what it `waited_for`),
    operator and module, apart from numbers in the module's name. The rank does not matter, because the hosts of a job
    are alike. The first step, entries outside of steps, and traces whose host times are not the reference host's are
    returned unchanged.
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
    for (place, trace, part), denoised in zip(parts, needs):
        host_ns = trace.columns["host_ns"].astype(np.int64)
        host_ns[part] = denoised
        result[place] = dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})
    return result


def undisturbed(times: Ints, stretch: Ints, least: int = _LEAST_TIMES) -> Ints:
    """Each time [n] without noise, ns; stretches with fewer than ``least`` times are unchanged.

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
    """The signature of each entry [n], for a wait that of the last work before it; -1: none.

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
        self._times = np.zeros((64, _KEPT), np.uint32)  # [stretch, place], a ring buffer each
        self._needs = np.zeros(64, np.int64)
        self._counts = np.zeros(64, np.int64)
        self._due = np.full(64, _SO_FAR, np.int64)  # the count at which they are evaluated again

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
        """Add times [n]; returns each without noise [n], ns, as far as its stretch is known by now."""
        result = times.copy()
        known = np.flatnonzero(stretch >= 0)
        if not len(known):
            return result
        own, times = stretch[known], times[known]
        self._reserve(len(self._stretches))
        order = np.argsort(own, kind="stable")
        found, first, count = np.unique(own[order], return_index=True, return_counts=True)
        nth = np.arange(len(own)) - np.repeat(first, count)
        ordered = own[order]
        self._times[ordered, (self._counts[ordered] + nth) % _KEPT] = np.minimum(times[order], np.iinfo(np.uint32).max)
        self._counts[found] += count
        self._evaluate(found[self._counts[found] >= self._due[found]])
        result[known] = np.where(self._counts[own] >= _SO_FAR, self._needs[own], times)
        return result

    def _evaluate(self, stretches: Ints) -> None:
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
    """The index of the stretch that ends with each entry of the parts, concatenated."""
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
