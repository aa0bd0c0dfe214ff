"""Heap of future arrivals, ordered by time, then number."""

from __future__ import annotations

from presim.serving.fast.serving_state import DELAY_WORKERS, PENDING, Program, ServingState


def push_arrival(s: ServingState, item: int, time_ns: int) -> None:
    """Add an arrival to the heap; at equal times the lower number comes first."""
    node = s.counters[PENDING]
    s.counters[PENDING] += 1
    while node > 0:
        above = (node - 1) // 2
        time = s.heap_time[above]
        if time < time_ns or (time == time_ns and s.heap_item[above] < item):
            break
        s.heap_time[node] = time
        s.heap_item[node] = s.heap_item[above]
        node = above
    s.heap_time[node] = time_ns
    s.heap_item[node] = item


def pop_arrival(s: ServingState) -> int:
    """Remove and return the first arrival."""
    item = s.heap_item[0]
    s.counters[PENDING] -= 1
    size = s.counters[PENDING]
    last_time = s.heap_time[size]
    last = s.heap_item[size]
    node = 0
    while True:
        below = 2 * node + 1
        if below >= size:
            break
        if below + 1 < size and (
            s.heap_time[below + 1] < s.heap_time[below]
            or (s.heap_time[below + 1] == s.heap_time[below] and s.heap_item[below + 1] < s.heap_item[below])
        ):
            below += 1
        if last_time < s.heap_time[below] or (last_time == s.heap_time[below] and last < s.heap_item[below]):
            break
        s.heap_time[node] = s.heap_time[below]
        s.heap_item[node] = s.heap_item[below]
        node = below
    s.heap_time[node] = last_time
    s.heap_item[node] = last
    return item


def release_followers(p: Program, s: ServingState, item: int, now: int) -> None:
    """A request ended: those that wait for no other one are sent, each after its delay and not before its arrival."""
    for child_index in range(p.child_first[item], p.child_first[item + 1]):
        child = p.children[child_index]
        s.unmet[child] -= 1
        if s.unmet[child] == 0:
            workers = p.fleet_knobs[DELAY_WORKERS]
            end = now + p.delay[child]
            if workers > 0 and p.delay[child] > 0:
                end = take_worker(s, workers, now, p.delay[child])
            push_arrival(s, child, max(end, p.arrival[child]))


def take_worker(s: ServingState, size: int, now: int, delay: int) -> int:
    """When a delay that begins now has passed: the first worker who is free takes it up, one of ``size``."""
    end = max(s.tool_free[0], now) + delay
    node = 0
    while 2 * node + 1 < size:
        below = 2 * node + 1
        if below + 1 < size and s.tool_free[below + 1] < s.tool_free[below]:
            below += 1
        if end <= s.tool_free[below]:
            break
        s.tool_free[node] = s.tool_free[below]
        node = below
    s.tool_free[node] = end
    return end
