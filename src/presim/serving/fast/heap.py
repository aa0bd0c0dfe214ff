"""Heap of future arrivals, ordered by time, then number."""

from __future__ import annotations

from presim.serving.fast.state import PENDING, Program, State


def send(s: State, item: int, when: int) -> None:
    """Add an arrival to the heap; at equal times the lower number comes first."""
    at = s.counters[PENDING]
    s.counters[PENDING] += 1
    while at > 0:
        above = (at - 1) // 2
        time = s.heap_time[above]
        if time < when or (time == when and s.heap_item[above] < item):
            break
        s.heap_time[at] = time
        s.heap_item[at] = s.heap_item[above]
        at = above
    s.heap_time[at] = when
    s.heap_item[at] = item


def next_arrival(s: State) -> int:
    """Remove and return the first arrival."""
    item = s.heap_item[0]
    s.counters[PENDING] -= 1
    size = s.counters[PENDING]
    when = s.heap_time[size]
    last = s.heap_item[size]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and (
            s.heap_time[below + 1] < s.heap_time[below]
            or (s.heap_time[below + 1] == s.heap_time[below] and s.heap_item[below + 1] < s.heap_item[below])
        ):
            below += 1
        if when < s.heap_time[below] or (when == s.heap_time[below] and last < s.heap_item[below]):
            break
        s.heap_time[at] = s.heap_time[below]
        s.heap_item[at] = s.heap_item[below]
        at = below
    s.heap_time[at] = when
    s.heap_item[at] = last
    return item


def follow(p: Program, s: State, item: int, now: int) -> None:
    """A request ended: those that wait for no other one are sent, each after its delay and not before its arrival."""
    for place in range(p.child_first[item], p.child_first[item + 1]):
        child = p.children[place]
        s.unmet[child] -= 1
        if s.unmet[child] == 0:
            send(s, child, max(now + p.delay[child], p.arrival[child]))
