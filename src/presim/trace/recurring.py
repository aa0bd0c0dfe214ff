"""What a host takes for the stretches of a step that recur, without what came in between.

A steady step holds the same stretch of host work many times: in each layer, micro-batch and step. Its times differ
where other processes had the caches or the core, where pages were brought in or a garbage collector ran. A stretch is
taken to need the mean of its times, each of which counts half above the shortest tenth of them at most.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import Trace

Ints = NDArray[np.int64]

_LEAST_TIMES = 8  # what recurs less often is taken as it came: it may do something else each time
_UNDISTURBED = 0.1  # the share of its times within which a stretch was not disturbed
_MOST = 1.5  # of the longest of those: more is a disturbance (docs/decisions/host-factor.md)


def steadied(trace: Trace) -> Trace:
    """The same trace with ``host_ns`` [entry] of the same stretches equal, and without what disturbed them.

    Stretches are the same where the entries at both ends are: kind, phase, signature, operator, and the module but for
    numbers in its name. The first step sets up and stays as it is, and so does what is outside of steps; a stretch
    whose times are equal keeps them. A trace in CPU time of another host than the reference one is left alone.
    """
    steps = trace.steps()
    if len(steps) < 2 or not trace.manifest.reference_host:
        return trace
    later = slice(steps[1].start, steps[-1].stop)
    host_ns = trace.columns["host_ns"].astype(np.int64)
    host_ns[later] = undisturbed(host_ns[later], _stretches(trace, later))
    return dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})


def undisturbed(times: Ints, stretch: Ints) -> Ints:
    """Of each time [n] what its stretch needs, ns; ``stretch`` [n]: which one, counted from 0."""
    counts = np.bincount(stretch)
    first = np.cumsum(counts) - counts
    ordered = times[np.lexsort((times, stretch))]
    shortest = ordered[first + (_UNDISTURBED * (counts - 1)).astype(np.int64)]
    needs = np.rint(np.bincount(stretch, np.minimum(times, _MOST * shortest[stretch])) / counts).astype(np.int64)
    result: Ints = np.where(counts[stretch] >= _LEAST_TIMES, needs[stretch], times)
    return result


def _stretches(trace: Trace, part: slice) -> Ints:
    """For each entry of the part which stretch ends with it, counted from 0."""
    columns = {name: column[part].astype(np.int64) for name, column in trace.columns.items()}
    classes = {re.sub(r"\d+", "#", scope) for scope in trace.scopes}
    number = {text: index for index, text in enumerate(sorted(classes))}
    scopes = np.array([*(number[re.sub(r"\d+", "#", scope)] for scope in trace.scopes), len(classes)], np.int64)
    what = _together(
        _together(columns["kind"], columns["phase"]),
        _together(columns["signature"] + 1, columns["operator"] + 1),
        scopes[columns["scope"]],
    )
    return _together(what, np.concatenate(([what.max() + 1], what[:-1])))


def _together(*keys: Ints) -> Ints:
    """One number for each combination [n] of numbers that are not negative."""
    result = keys[0]
    for key in keys[1:]:
        result = np.unique(result * (int(key.max()) + 1) + key, return_inverse=True)[1].reshape(-1)
    return result
