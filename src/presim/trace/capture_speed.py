"""Estimates how fast the machine was during a capture, from host work whose duration is known.

Between the same two entries of the same module, or within one of PyTorch's own operators, the host runs the same code
in every program: what differs is how much of the caches and cores other processes took. ``known_stretches.parquet``
has the time of such stretches on a machine that did nothing else (validation/known_stretches.py); how much longer they
take in a trace is how much longer all of its host time is (docs/decisions/host-time.md).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import Kind, Phase, Trace

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_WINDOW = 2048  # known stretches per window; a window has one slowdown
_LEAST = 64  # fewer are too few for an estimate
_WELL_KNOWN = 0.5  # share of host time from which on a pace below 1 is taken whole for the machine's
_FOUND_NS = 500_000  # after so long a stretch the host has found again what others took (shim/core/pace.h)
_FASTEST = 0.5  # less than this of the reference is what observing took too much off, not a faster machine
_MODULES = 2  # trailing parts of a module's path that identify it
_WITHIN = ((Kind.ALLOC, Kind.WORK), (Kind.WORK, Kind.WORK))  # entries with no Python code between them in an operator


def key(before: int, operator_before: str, kind: int, operator: str, phase: int, module: str = "") -> str:
    """The name of a stretch of host work by the entries at both ends: their kinds and operators, the latter's phase.

    ``module``: the path of the latter's; it does not matter within one of PyTorch's own operators.
    """
    phase = Phase.FORWARD if phase == Phase.RECOMPUTE else phase
    begin, end = Kind(before).name, Kind(kind).name
    if operator == operator_before and operator.startswith("aten::") and (before, kind) in _WITHIN:
        return f"{begin} {operator} {Phase(phase).name}"
    name = f"{begin} {operator_before} > {end} {operator} {Phase(phase).name} "
    return re.sub(r"\d+", "#", name + ".".join(module.split(".")[-_MODULES:]))


@functools.cache
def reference_ns() -> dict[str, float]:
    """The median time of known stretches, by `key`."""
    import pyarrow.parquet as pq

    with resources.as_file(resources.files("presim.calibration").joinpath("known_stretches.parquet")) as path:
        table = pq.ParquetFile(path).read()  # `read_table` imports pandas where it is installed
    return dict(zip(table["stretch"].to_pylist(), table["ns"].to_pylist()))


class CaptureSpeed:
    """The same, while entries come in: how much longer than the reference its last known stretches took."""

    def __init__(self) -> None:
        self._ratios, self._references = np.zeros(0), np.zeros(0)
        self._passed = self._known = self._count = 0

    def add(self, times: Ints, references: Floats) -> None:
        """Stretches that took some time [n], ns, and by the table should [n], ns; 0 where it does not know them."""
        known = (references > 0) & (times > 0)
        self._passed += int(times.sum())
        self._known += int(times[known].sum())
        self._count += int(known.sum())
        self._ratios = np.concatenate((self._ratios, times[known] / references[known]))[-_WINDOW:]
        self._references = np.concatenate((self._references, references[known]))[-_WINDOW:]

    @property
    def slowdown(self) -> float:
        """Host time over host time on an idle machine; 1 if too little is known."""
        if len(self._ratios) < _LEAST:
            return 1.0
        pace = _middle(self._ratios, self._references)
        return float(_trusted(np.array(pace), self._known / max(self._passed, 1), self._count))


def stretches(trace: Trace) -> tuple[Ints, list[str], Ints, Ints]:
    """The stretches of a trace.

    Returns: entry [n] that each ends with, the names of the different ones (`key`), for each [n] which of them it is,
    and its time [n], ns. What tags a block is no entry here: it comes with the allocation.
    """
    entries = np.flatnonzero(~trace.mask(Kind.RETAG))
    times = np.diff(np.cumsum(trace.columns["host_ns"].astype(np.int64))[entries])
    names = ("kind", "operator", "phase", "scope")
    kind, operator, phase, scope = (trace.columns[name][entries].astype(np.int64) + 1 for name in names)
    operators, scopes = ("", *trace.operators), ("", *trace.scopes)
    width = (len(Kind) + 1, len(operators), len(Kind) + 1, len(operators), len(Phase) + 1, len(scopes))
    parts = (kind[:-1], operator[:-1], kind[1:], operator[1:], phase[1:], scope[1:])
    codes, which = np.unique(np.ravel_multi_index(parts, width), return_inverse=True)
    numbers = zip(*(part.tolist() for part in np.unravel_index(codes, width)))
    found = [key(a - 1, operators[b], c - 1, operators[d], e - 1, scopes[f]) for a, b, c, d, e, f in numbers]
    return entries[1:], found, which.reshape(-1), times


def without_slowdown(host_ns: Ints, pace: Floats | float) -> Ints:
    """Host time [n] without what other processes cost it, ns, for each at a pace [n].

    What runs long without an entry waits for little that others took: a stretch goes by the pace at its beginning only.
    """
    return np.rint(host_ns - np.minimum(host_ns, _FOUND_NS) * (1 - 1 / pace)).astype(np.int64)


def slowdown_between(before: Trace, after: Trace) -> float | None:
    """How much longer host time had been than what `on_idle_machine` made of it; None where it knew too little."""
    if after is before:
        return None
    spent, left = (int(trace.columns["host_ns"].astype(np.int64).sum()) for trace in (before, after))
    return spent / max(left, 1)


def on_idle_machine(trace: Trace) -> Trace:
    """The trace with ``host_ns`` [entry] as on a machine that does nothing else.

    Each window of known stretches has a pace of its own, for neighbours come and go. What lies before the first step's
    end sets up, with code that never ran before: it goes by the pace of what follows. A trace with too few known
    stretches, or in CPU time of another host than the reference one, is left alone.
    """
    entries, names, which, times = stretches(trace)
    known = reference_ns()
    references = np.array([known.get(name, 0.0) for name in names] or [0.0])[which]
    steps = trace.steps()
    steady = entries >= (steps[0].stop if len(steps) > 1 else 0)
    chosen = (references > 0) & (times > 0) & steady
    if int(chosen.sum()) < _LEAST or not trace.manifest.reference_host:
        return trace
    share = float(times[chosen].sum() / times[steady].sum())
    ends, ratios, references = entries[chosen], times[chosen] / references[chosen], references[chosen]
    windows = np.array_split(np.arange(len(ratios)), max(1, len(ratios) // _WINDOW))
    paces = _trusted(np.array([_middle(ratios[window], references[window]) for window in windows]), share, len(ratios))
    last = ends[[window[-1] for window in windows[:-1]]]
    pace = paces[np.searchsorted(last, np.arange(len(trace)))]
    host_ns = without_slowdown(trace.columns["host_ns"].astype(np.int64), pace)
    return dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})


def _trusted(pace: Floats, share: float, count: int) -> Floats:
    """As far as a ``share`` of host time is known, by so many stretches, where it takes less than the reference.

    Of one that is known by PyTorch's operators only it is not known whether the machine is faster or the program leaves
    more in the caches.
    """
    trust = min(1.0, share / _WELL_KNOWN) * min(1.0, count / _WINDOW)
    return np.where(pace < 1, np.maximum(pace, _FASTEST) ** trust, pace)


def _middle(values: Floats, weights: Floats) -> float:
    """The median of values [n], each of which counts as often as its weight says."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
