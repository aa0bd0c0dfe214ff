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
_MAX_MULTIPLE = 1.5  # multiple of the longest undisturbed time; the rest is noise (docs/decisions/host-factor.md)
_LATEST_TIMES = 128  # latest times of a stretch that `HostNoise` keeps
_MIN_OCCURRENCES = 2  # a stretch that occurred this often is expected in every step
_GROWTH_DENOMINATOR = 16  # times are evaluated again when their number has grown by one in so many
_STRETCHES = 1 << 15  # stretches in memory: 16 MiB of times
_TABLES = ("signature", "operator", "scope")  # columns with places in tables of their trace


def without_host_noise(traces: Sequence[Trace]) -> list[Trace]:
    """The traces with noise removed from ``host_ns`` [entry]; equal stretches get equal times.

    Stretches are equal if the entries at both ends agree in kind, phase, signature (for a wait: what it `waited_for`),
    operator and module, apart from numbers in the module's name. The rank does not matter, because the hosts of a job
    are alike. The first step, entries outside of steps, and traces whose host times are not the reference host's are
    returned unchanged.
    """
    denoised_traces = list(traces)
    parts = [
        (trace_index, trace, slice(steps[1].start, steps[-1].stop))
        for trace_index, trace in enumerate(denoised_traces)
        if len(steps := trace.steps()) >= 2 and trace.manifest.reference_host
    ]
    if not parts:
        return denoised_traces
    times = [trace.columns["host_ns"][part].astype(np.int64) for _, trace, part in parts]
    stretch = _stretches([(trace, part) for _, trace, part in parts])
    denoised_parts = np.split(
        undisturbed(np.concatenate(times), stretch), np.cumsum([len(part_times) for part_times in times])[:-1]
    )
    for (trace_index, trace, part), denoised in zip(parts, denoised_parts):
        host_ns = trace.columns["host_ns"].astype(np.int64)
        host_ns[part] = denoised
        denoised_traces[trace_index] = dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})
    return denoised_traces


def undisturbed(times: Ints, stretch: Ints, least: int = _LEAST_TIMES) -> Ints:
    """Each time [n] without noise, ns; stretches with fewer than ``least`` times are unchanged.

    ``stretch`` [n]: index of the stretch.
    """
    counts = np.bincount(stretch)
    first = np.cumsum(counts) - counts
    ordered = times[np.lexsort((times, stretch))]
    shortest = ordered[first + (_UNDISTURBED * (counts - 1)).astype(np.int64)]
    denoised_ns = np.rint(np.bincount(stretch, np.minimum(times, _MAX_MULTIPLE * shortest[stretch])) / counts).astype(
        np.int64
    )
    result: Ints = np.where(counts[stretch] >= least, denoised_ns[stretch], times)
    return result


def waited_for(kind: Ints, signature: Ints, earlier: int = -1) -> Ints:
    """The signature of each entry [n], for a wait that of the last work before it; -1: none.

    ``earlier``: the last signature before these entries.
    """
    signatures = np.concatenate(([earlier], signature))
    last = np.maximum.accumulate(np.where(signatures >= 0, np.arange(len(signatures)), 0))[1:]
    result: Ints = np.where(np.isin(kind, WAITS), signatures[last], signature)
    return result


class HostNoise:
    """Noise-free times of stretches, updated while entries arrive, over all ranks of a job."""

    def __init__(self) -> None:
        self._entry_numbers: dict[Hashable, int] = {}
        self._stretches: dict[tuple[int, int], int] = {}
        self._times = np.zeros((64, _LATEST_TIMES), np.uint32)  # [stretch, position], a ring buffer each
        self._denoised_ns = np.zeros(64, np.int64)
        self._counts = np.zeros(64, np.int64)
        # count of times at which a stretch is evaluated again
        self._next_evaluation_counts = np.full(64, _MIN_OCCURRENCES, np.int64)

    def entry(self, kind: int, phase: int, signature: Hashable, operator: str | None, scope: str | None) -> int:
        """A number for the entry at an end of a stretch."""
        entry_key = (kind, phase, signature, operator, None if scope is None else _module(scope))
        return self._entry_numbers.setdefault(entry_key, len(self._entry_numbers))

    def stretch(self, before: int, entry: int) -> int:
        """The number of the stretch between two entries; -1: there are too many to know this one."""
        number = self._stretches.get((before, entry), -1)
        if number < 0 and len(self._stretches) < _STRETCHES:
            number = self._stretches[before, entry] = len(self._stretches)
        return number

    def take(self, times: Ints, stretch: Ints) -> Ints:
        """Add times [n]; returns each without noise [n], ns, as far as its stretch is known by now."""
        result = times.copy()
        numbered = np.flatnonzero(stretch >= 0)
        if not len(numbered):
            return result
        stretch_numbers, times = stretch[numbered], times[numbered]
        self._reserve(len(self._stretches))
        order = np.argsort(stretch_numbers, kind="stable")
        distinct_stretches, first, count = np.unique(stretch_numbers[order], return_index=True, return_counts=True)
        nth = np.arange(len(stretch_numbers)) - np.repeat(first, count)
        ordered = stretch_numbers[order]
        self._times[ordered, (self._counts[ordered] + nth) % _LATEST_TIMES] = np.minimum(
            times[order], np.iinfo(np.uint32).max
        )
        self._counts[distinct_stretches] += count
        self._evaluate(
            distinct_stretches[self._counts[distinct_stretches] >= self._next_evaluation_counts[distinct_stretches]]
        )
        result[numbered] = np.where(
            self._counts[stretch_numbers] >= _MIN_OCCURRENCES, self._denoised_ns[stretch_numbers], times
        )
        return result

    def _evaluate(self, stretches: Ints) -> None:
        if not len(stretches):
            return
        counts = np.minimum(self._counts[stretches], _LATEST_TIMES)
        latest_times = self._times[stretches][np.arange(_LATEST_TIMES) < counts[:, None]].astype(np.int64)
        denoised_ns = undisturbed(latest_times, np.repeat(np.arange(len(stretches)), counts), _MIN_OCCURRENCES)
        self._denoised_ns[stretches] = denoised_ns[np.cumsum(counts) - counts]
        self._next_evaluation_counts[stretches] = self._counts[stretches] + np.maximum(1, counts // _GROWTH_DENOMINATOR)

    def _reserve(self, size: int) -> None:
        while len(self._counts) < size:
            self._times = np.concatenate((self._times, np.zeros_like(self._times)))
            self._denoised_ns, self._counts = (
                np.concatenate((array, 0 * array)) for array in (self._denoised_ns, self._counts)
            )
            self._next_evaluation_counts = np.concatenate(
                (self._next_evaluation_counts, np.full_like(self._next_evaluation_counts, _MIN_OCCURRENCES))
            )


def _module(scope: str) -> str:
    return re.sub(r"\d+", "#", scope)


def _stretches(parts: Sequence[tuple[Trace, slice]]) -> Ints:
    """The index of the stretch that ends with each entry of the parts, concatenated."""
    numbers: dict[Hashable, int] = {}
    columns = [_numbered_columns(trace, part, numbers) for trace, part in parts]
    kind, phase, signature, operator, scope = (np.concatenate(column) for column in zip(*columns))
    entry_keys = _combined_numbers(_combined_numbers(kind, phase), _combined_numbers(signature, operator), scope)
    before = np.concatenate(([0], entry_keys[:-1]))
    before[np.cumsum([0, *(len(column[0]) for column in columns[:-1])])] = entry_keys.max() + 1  # a part begins
    return _combined_numbers(entry_keys, before)


def _numbered_columns(trace: Trace, part: slice, numbers: dict[Hashable, int]) -> list[Ints]:
    """Kind, phase, signature, operator and module of each entry of the part, by numbers that traces share."""
    columns = {name: trace.columns[name][part].astype(np.int64) for name in ("kind", "phase", *_TABLES)}
    columns["signature"] = waited_for(columns["kind"], columns["signature"])
    modules = [_module(scope) for scope in trace.scopes]
    for name, table in zip(_TABLES, (trace.signatures, trace.operators, modules)):
        number = [numbers.setdefault((name, value), len(numbers)) for value in (*table, None)]  # -1, the last: none
        columns[name] = np.array(number, np.int64)[columns[name]]
    return list(columns.values())


def _combined_numbers(*keys: Ints) -> Ints:
    """One number for each combination [n] of numbers that are not negative."""
    result = keys[0]
    for key in keys[1:]:
        result = np.unique(result * (int(key.max()) + 1) + key, return_inverse=True)[1].reshape(-1)
    return result
