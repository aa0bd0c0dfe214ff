"""Events: a binary heap ordered by (time, priority, sequence), in which the end of an op can be moved."""

from __future__ import annotations

from presim.engine.state import END, HEAP, PRIORITY, READY, SEQUENCE, State


def wake(s: State, slot: int, time: int) -> None:
    """Look at the slot's head at `time`; an event that is there already comes no later."""
    if s.pending[slot] == 0:
        s.pending[slot] = 1
        push(s, time, READY, slot)


def push(s: State, time: int, priority: int, item: int) -> None:
    """Add an event."""
    at = s.counters[HEAP]
    s.counters[HEAP] += 1
    rise(s, at, time, next_key(s, priority), item)


def pop(s: State) -> None:
    """Remove the first event."""
    s.counters[HEAP] -= 1
    last = s.counters[HEAP]
    sink(s, 0, s.heap_time[last], s.heap_key[last], s.heap_item[last])


def move(s: State, op: int, time: int) -> None:
    """Let an op that runs end at another time; among equals it now comes last."""
    at = s.place[op]
    key = next_key(s, END)
    if time < s.heap_time[at]:
        rise(s, at, time, key, op)
    else:
        sink(s, at, time, key, op)


def next_key(s: State, priority: int) -> int:
    """What orders an event among those of the same time."""
    key = priority * PRIORITY + s.counters[SEQUENCE]
    s.counters[SEQUENCE] += 1
    return key


def rise(s: State, at: int, time: int, key: int, item: int) -> None:
    """Put an event where those above it come first, beginning at a place that is free."""
    while at > 0:
        above = (at - 1) // 2
        if s.heap_time[above] < time or (s.heap_time[above] == time and s.heap_key[above] < key):
            break
        put(s, at, s.heap_time[above], s.heap_key[above], s.heap_item[above])
        at = above
    put(s, at, time, key, item)


def sink(s: State, at: int, time: int, key: int, item: int) -> None:
    """Put an event where those below it come later, beginning at a place that is free."""
    size = s.counters[HEAP]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        right = below + 1
        if right < size and (
            s.heap_time[right] < s.heap_time[below]
            or (s.heap_time[right] == s.heap_time[below] and s.heap_key[right] < s.heap_key[below])
        ):
            below = right
        if time < s.heap_time[below] or (time == s.heap_time[below] and key < s.heap_key[below]):
            break
        put(s, at, s.heap_time[below], s.heap_key[below], s.heap_item[below])
        at = below
    put(s, at, time, key, item)


def put(s: State, at: int, time: int, key: int, item: int) -> None:
    """Write an event, and for an end where it stands."""
    s.heap_time[at] = time
    s.heap_key[at] = key
    s.heap_item[at] = item
    if key < PRIORITY:
        s.place[item] = at
