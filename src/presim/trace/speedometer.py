"""How fast the machine was while a trace was captured, told by stretches of host work that every program has.

From an allocation to the launch that it is for, or from launch to launch, within one of PyTorch's own operators the
host runs the same code whatever the program: what differs is how much of the caches and cores other processes took.
``known_stretches.toml`` has the time of such stretches on a machine that did nothing else
(validation/known_stretches.py); how much longer they take in a trace is how much longer all of its host time is
(docs/decisions/host-time.md).
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections import deque
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import Kind, Phase, Trace

Ints = NDArray[np.int64]

_WINDOW = 512  # stretches of which the median is the pace of the time that they lie in
_LEAST = 64  # fewer say nothing


def key(before: int, operator: str, phase: int) -> str:
    """The name of a stretch that ends with a launch: the kind of the entry before, the operator of both, the phase."""
    phase = Phase.FORWARD if phase == Phase.RECOMPUTE else phase
    return f"{Kind(before).name} {operator} {Phase(phase).name}"


@functools.cache
def reference_ns() -> dict[str, float]:
    """The median time of known stretches, by `key`."""
    text = resources.files("presim.trace").joinpath("known_stretches.toml").read_text()
    return {name: float(ns) for name, ns in tomllib.loads(text)["ns"].items()}


class Pace:
    """The same, while entries come in: how much longer than the reference its last known stretches took."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=_WINDOW)
        self._known = reference_ns()

    def add(self, stretch: str, ns: int) -> None:
        """A stretch, by `key`, that took some time; one that is not known is passed over."""
        reference = self._known.get(stretch)
        if reference is not None and ns > 0:
            self._ratios.append(ns / reference)

    @property
    def slowdown(self) -> float:
        """Host time over that of the machine alone; 1 where it took less, or too little is known."""
        return max(1.0, float(np.median(self._ratios))) if len(self._ratios) >= _LEAST else 1.0


def within(trace: Trace) -> tuple[Ints, list[str], Ints, Ints]:
    """The stretches of a trace that end with a launch and lie within one operator.

    Returns: entry [n] that each ends with, the names of the different ones (`key`), for each [n] which of them it is,
    and its time [n], ns. What tags a block is no entry here: it comes with the allocation.
    """
    entries = np.flatnonzero(~trace.mask(Kind.RETAG))
    times = np.diff(np.cumsum(trace.columns["host_ns"].astype(np.int64))[entries])
    kind, operator, phase = (trace.columns[name][entries].astype(np.int64) for name in ("kind", "operator", "phase"))
    of_pytorch = np.array([name.startswith("aten::") for name in trace.operators] + [False])
    chosen = np.isin(kind[:-1], (Kind.ALLOC, Kind.WORK)) & (kind[1:] == Kind.WORK)
    chosen &= (operator[:-1] == operator[1:]) & of_pytorch[operator[1:]] & (times > 0)
    parts = np.stack([kind[:-1][chosen], operator[1:][chosen], phase[1:][chosen]])
    codes, which = np.unique(parts, axis=1, return_inverse=True)
    names = [key(began, trace.operators[index], during) for began, index, during in codes.T.tolist()]
    return entries[1:][chosen], names, which.reshape(-1), times[chosen]


def slowed(before: Trace, after: Trace) -> float | None:
    """How much longer host time had been than what `alone` made of it; None where it knew too little."""
    if after is before:
        return None
    spent, left = (int(trace.columns["host_ns"].astype(np.int64).sum()) for trace in (before, after))
    return spent / max(left, 1)


def alone(trace: Trace) -> Trace:
    """The trace with ``host_ns`` [entry] as on a machine that does nothing else.

    Each window of known stretches has a pace of its own, for neighbours come and go. What lies before the first step's
    end sets up, with code that never ran before: it goes by the pace of what follows. A program whose stretches take
    less than the reference leaves more in the caches, and keeps its time. A trace with too few known stretches, or in
    CPU time of another host than the reference one, is left alone.
    """
    entries, names, which, times = within(trace)
    known = reference_ns()
    references = np.array([*(known.get(name, 0.0) for name in names), 0.0])[which]
    steps = trace.steps()
    chosen = (references > 0) & (entries >= (steps[0].stop if len(steps) > 1 else 0))
    ends, ratios = entries[chosen], times[chosen] / references[chosen]
    if len(ratios) < _LEAST or not trace.manifest.reference_host:
        return trace
    windows = np.array_split(np.arange(len(ratios)), max(1, len(ratios) // _WINDOW))
    paces = np.array([max(1.0, float(np.median(ratios[window]))) for window in windows])
    last = ends[[window[-1] for window in windows[:-1]]]
    pace = paces[np.searchsorted(last, np.arange(len(trace)))]
    host_ns = np.rint(trace.columns["host_ns"].astype(np.int64) / pace).astype(np.int64)
    return dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})
