"""What a host takes for the stretches of a step that recur, without what came in between.

A steady step holds the same stretch of host work many times: in each layer, micro-batch, step and rank. Its times
differ where other processes had the caches or the core, where pages were brought in or a garbage collector ran. A
stretch is taken to need the mean of its times, each of which counts half above the shortest tenth of them at most.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import Trace

Ints = NDArray[np.int64]

_LEAST_TIMES = 8  # what recurs less often is taken as it came: it may do something else each time
_UNDISTURBED = 0.1  # the share of its times within which a stretch was not disturbed
_MOST = 1.5  # of the longest of those: more is a disturbance (docs/decisions/host-factor.md)
_TABLES = ("signature", "operator", "scope")  # columns with places in tables of their trace


def steadied(traces: Sequence[Trace]) -> list[Trace]:
    """The same traces with ``host_ns`` [entry] of the same stretches equal, and without what disturbed them.

    Stretches are the same where the entries at both ends are: kind, phase, signature, operator, and the module but for
    numbers in its name; on whichever rank of the job, for its hosts are alike. The first step sets up and stays as it
    is, and so does what is outside of steps; a stretch whose times are equal keeps them. A trace in CPU time of another
    host than the reference one is left alone.
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


def undisturbed(times: Ints, stretch: Ints) -> Ints:
    """Of each time [n] what its stretch needs, ns; ``stretch`` [n]: which one, counted from 0."""
    counts = np.bincount(stretch)
    first = np.cumsum(counts) - counts
    ordered = times[np.lexsort((times, stretch))]
    shortest = ordered[first + (_UNDISTURBED * (counts - 1)).astype(np.int64)]
    needs = np.rint(np.bincount(stretch, np.minimum(times, _MOST * shortest[stretch])) / counts).astype(np.int64)
    result: Ints = np.where(counts[stretch] >= _LEAST_TIMES, needs[stretch], times)
    return result


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
    modules = [re.sub(r"\d+", "#", scope) for scope in trace.scopes]
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
