"""Inner loops over links and flows, compiled by numba for large networks."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

COMPILED_FROM = 20_000  # steps of an inner loop; compiling takes some seconds, once per machine


def fast(function: _Function, steps: int) -> _Function:
    """The function, or its compiled version for many steps; both give the same result."""
    compiled: _Function = _compiled(function) if steps >= COMPILED_FROM else function
    return compiled


@functools.cache
def _compiled(function: Any) -> Any:
    import numba

    njit: Any = numba.njit
    try:
        twin = njit(cache=True)(function)
    except (RuntimeError, OSError):  # numba has no writable cache folder
        twin = njit(function)
    return twin


def refine(paths: Ints, flow_colour: Words, link_colour: Words, flow_sum: Words, link_sum: Words) -> None:
    """Sum the colours of each flow's links in ``flow_sum``, and of each link's flows in ``link_sum``."""
    for flow in range(paths.shape[0]):
        for hop in range(paths.shape[1]):
            link = paths[flow, hop]
            if link >= 0:
                flow_sum[flow] += link_colour[link]
                link_sum[link] += flow_colour[flow]


def fill(
    capacity: Floats, link_first: Ints, link_class: Ints, link_count: Floats, class_first: Ints, class_link: Ints,
    class_count: Floats, active: Ints, changed: Ints, rate: Floats,
) -> int:  # fmt: skip
    """Max-min fair rates of all active classes that a change can affect; returns their number.

    Progressive filling: the link with the least capacity per flow fixes the rates of its flows, and so on.

    ``capacity`` [link] is in bytes/s. ``link_first``, ``link_class`` and ``link_count`` are CSR by link: classes on it,
    and the number of flows of each; ``class_first`` and so on are the same by class. ``active`` [class] is 1 if it has
    flows now. ``changed``: classes that started or ended; every class connected to them through shared links is solved.
    ``rate`` [class] is written: bytes/s of each flow.
    """
    links, classes = len(capacity), len(active)
    is_near, in_part = np.zeros(links, np.int64), np.zeros(classes, np.int64)
    stack = [0]
    stack.pop()
    for flow_class in changed:
        if active[flow_class] == 1:
            in_part[flow_class] = 1
        for link_slot in range(class_first[flow_class], class_first[flow_class + 1]):
            if is_near[class_link[link_slot]] == 0:
                is_near[class_link[link_slot]] = 1
                stack.append(class_link[link_slot])
    while len(stack) > 0:
        link = stack.pop()
        for flow_slot in range(link_first[link], link_first[link + 1]):
            flow_class = link_class[flow_slot]
            if active[flow_class] == 1 and (in_part[flow_class] == 0 or in_part[flow_class] == 1):
                in_part[flow_class] = 2
                for other_slot in range(class_first[flow_class], class_first[flow_class + 1]):
                    if is_near[class_link[other_slot]] == 0:
                        is_near[class_link[other_slot]] = 1
                        stack.append(class_link[other_slot])
    load, remaining_Bps = np.zeros(links), capacity.copy()
    heap = [(0.0, 0)]
    heap.pop()
    touched = 0
    for link in range(links):
        if is_near[link] == 0:
            continue
        for flow_slot in range(link_first[link], link_first[link + 1]):
            if in_part[link_class[flow_slot]] > 0:
                load[link] += link_count[flow_slot]
        if load[link] > 0:
            heapq.heappush(heap, (remaining_Bps[link] / load[link], link))
    while len(heap) > 0:
        level, link = heapq.heappop(heap)
        if load[link] <= 1e-9:
            continue
        now = remaining_Bps[link] / load[link]
        if now > level * (1 + 1e-12):
            heapq.heappush(heap, (now, link))
            continue
        for flow_slot in range(link_first[link], link_first[link + 1]):
            flow_class = link_class[flow_slot]
            if in_part[flow_class] == 0:
                continue
            in_part[flow_class] = 0
            touched += 1
            rate[flow_class] = level
            for link_slot in range(class_first[flow_class], class_first[flow_class + 1]):
                other_link = class_link[link_slot]
                load[other_link] -= class_count[link_slot]
                remaining_Bps[other_link] -= class_count[link_slot] * level
        load[link] = 0.0
    return touched
