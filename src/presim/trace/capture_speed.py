"""Estimates how fast the machine was during a capture, from host work whose duration is known.

Between the same two entries of the same module, or within one of PyTorch's own operators, the host runs the same code
in every program. Its time differs because other processes compete for caches and cores. ``known_stretches.parquet``
holds the time of such stretches on an otherwise idle machine (validation/known_stretches.py). The ratio of a trace's
times to these is the slowdown of all its host time (docs/decisions/host-time.md).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from presim.system.files import read_parquet
from presim.trace.schema import Kind, Phase, Trace

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_WINDOW = 2048  # known stretches per window; a window has one slowdown
_MIN_STRETCHES = 64  # fewer are too few for an estimate
_WELL_KNOWN = 0.5  # share of host time in known stretches from which a slowdown below 1 is fully trusted
_REFILL_NS = 500_000  # after so long without an entry the host has refilled its caches (shim/core/pace.h)
_FASTEST = 0.5  # a smaller ratio means that too much observer time was subtracted, not that the machine is faster
_MODULES = 2  # trailing parts of a module's path that identify it
_KIND_NAMES = {int(kind): kind.name for kind in Kind}
_PHASE_NAMES = {int(phase): phase.name for phase in Phase} | {int(Phase.RECOMPUTE): Phase.FORWARD.name}
_WITHIN = ((Kind.ALLOC, Kind.WORK), (Kind.WORK, Kind.WORK))  # entries with no Python code between them in an operator


def key(before: int, operator_before: str, kind: int, operator: str, phase: int, module: str = "") -> str:
    """The name of a stretch of host work: kinds and operators of the entries at both ends, and the phase of the last.

    ``module``: module path of the last entry; ignored within one of PyTorch's own operators.
    """
    begin, end, phase_name = _KIND_NAMES[before], _KIND_NAMES[kind], _PHASE_NAMES[phase]
    if operator == operator_before and operator.startswith("aten::") and (before, kind) in _WITHIN:
        return f"{begin} {operator} {phase_name}"
    operators = f"{begin} {_without_numbers(operator_before)} > {end} {_without_numbers(operator)}"
    return f"{operators} {phase_name} {_module_kind(module)}"


@functools.cache
def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "#", name)


@functools.cache
def _module_kind(path: str) -> str:
    """What identifies a module in another program, without the numbers of layers."""
    return _without_numbers(".".join(path.split(".")[-_MODULES:]))


@functools.cache
def reference_ns() -> dict[str, float]:
    """The median time of known stretches, by `key`."""
    with resources.as_file(resources.files("presim.trace").joinpath("known_stretches.parquet")) as path:
        table, _ = read_parquet(path)
    return dict(zip(table["stretch"].to_pylist(), table["ns"].to_pylist()))


class CaptureSpeed:
    """The slowdown of a running rank, from the latest known stretches."""

    def __init__(self) -> None:
        self._ratios, self._references = np.zeros(0), np.zeros(0)
        self._total_ns = self._known_ns = self._count = 0

    def add(self, times: Ints, references: Floats) -> None:
        """Add stretches: their times [n] and reference times [n], both ns; a reference of 0 means unknown."""
        is_known = (references > 0) & (times > 0)
        self._total_ns += int(times.sum())
        self._known_ns += int(times[is_known].sum())
        self._count += int(is_known.sum())
        self._ratios = np.concatenate((self._ratios, times[is_known] / references[is_known]))[-_WINDOW:]
        self._references = np.concatenate((self._references, references[is_known]))[-_WINDOW:]

    @property
    def slowdown(self) -> float:
        """Host time over host time on an idle machine; 1 if too little is known."""
        if len(self._ratios) < _MIN_STRETCHES:
            return 1.0
        slowdown = weighted_median(self._ratios, self._references)
        return float(_trusted(np.array(slowdown), self._known_ns / max(self._total_ns, 1), self._count))


def stretches(trace: Trace) -> tuple[Ints, list[str], Ints, Ints]:
    """The stretches of a trace.

    Returns: the entry [n] that ends each stretch, the distinct names (`key`), the index [n] of each stretch's name, and
    its time [n], ns. `Kind.RETAG` entries are skipped: they come with the allocation.
    """
    entries = np.flatnonzero(~trace.mask(Kind.RETAG))
    times = np.diff(np.cumsum(trace.columns["host_ns"].astype(np.int64))[entries])
    names = ("kind", "operator", "phase", "scope")
    kind, operator, phase, scope = (trace.columns[name][entries].astype(np.int64) + 1 for name in names)
    operators, scopes = ("", *trace.operators), ("", *trace.scopes)
    width = (len(Kind) + 1, len(operators), len(Kind) + 1, len(operators), len(Phase) + 1, len(scopes))
    parts = (kind[:-1], operator[:-1], kind[1:], operator[1:], phase[1:], scope[1:])
    codes, name_index = np.unique(np.ravel_multi_index(parts, width), return_inverse=True)
    distinct_parts = zip(*(part.tolist() for part in np.unravel_index(codes, width)))
    stretch_names = [
        key(a - 1, operators[b], c - 1, operators[d], e - 1, scopes[f]) for a, b, c, d, e, f in distinct_parts
    ]
    return entries[1:], stretch_names, name_index.reshape(-1), times


def without_slowdown(host_ns: Ints, slowdown: Floats | float) -> Ints:
    """Host time [n], ns, with the ``slowdown`` [n] by other processes removed.

    Only the beginning of a long stretch is slowed down: after that its data is in the caches again.
    """
    return np.rint(host_ns - np.minimum(host_ns, _REFILL_NS) * (1 - 1 / slowdown)).astype(np.int64)


def slowdown_between(before: Trace, after: Trace) -> float | None:
    """Host time before `on_idle_machine` over host time after it; None if the trace was not changed."""
    if after is before:
        return None
    captured_ns, idle_ns = (int(trace.columns["host_ns"].astype(np.int64).sum()) for trace in (before, after))
    return captured_ns / max(idle_ns, 1)


def on_idle_machine(trace: Trace) -> Trace:
    """The trace with ``host_ns`` [entry] as on a machine that does nothing else.

    Each window of known stretches has its own slowdown, because other processes come and go. Entries before the end of
    the first step run code for the first time: they take the slowdown of the first window. A trace with too few known
    stretches, or whose host times are not the reference host's, is returned unchanged.
    """
    entries, names, name_index, times = stretches(trace)
    reference_times = reference_ns()
    references = np.array([reference_times.get(name, 0.0) for name in names] or [0.0])[name_index]
    steps = trace.steps()
    steady = entries >= (steps[0].stop if len(steps) > 1 else 0)
    is_measured = (references > 0) & (times > 0) & steady
    if int(is_measured.sum()) < _MIN_STRETCHES or not trace.manifest.reference_host:
        return trace
    share = float(times[is_measured].sum() / times[steady].sum())
    stretch_ends, ratios, references = (
        entries[is_measured],
        times[is_measured] / references[is_measured],
        references[is_measured],
    )
    windows = np.array_split(np.arange(len(ratios)), max(1, len(ratios) // _WINDOW))
    slowdowns = _trusted(
        np.array([weighted_median(ratios[window], references[window]) for window in windows]), share, len(ratios)
    )
    last = stretch_ends[[window[-1] for window in windows[:-1]]]
    slowdown = slowdowns[np.searchsorted(last, np.arange(len(trace)))]
    host_ns = without_slowdown(trace.columns["host_ns"].astype(np.int64), slowdown)
    return dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})


def _trusted(slowdown: Floats, share: float, count: int) -> Floats:
    """The slowdown, with values below 1 moved towards 1 where little is known.

    ``share``: share of host time in known stretches; ``count``: their number. If few stretches beyond PyTorch's own
    operators are known, a low ratio may mean a program that leaves more in the caches rather than a faster machine.
    """
    trust = min(1.0, share / _WELL_KNOWN) * min(1.0, count / _WINDOW)
    return np.where(slowdown < 1, np.maximum(slowdown, _FASTEST) ** trust, slowdown)


def weighted_median(values: Floats, weights: Floats) -> float:
    """The median of values [n] with weights [n]: the smallest that, with all smaller ones, has half of the weight."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
