"""Events: a binary heap ordered by (time, priority, sequence), in which the end of an op can be moved."""

from __future__ import annotations

from presim.engine.state import END, HEAP, PRIORITY, READY, SEQUENCE, State


def wake(s: State, slot: int, time: int) -> None:
    """Check the slot's head at `time`. A READY event that is already queued for the slot is never later."""
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
    """Change the end of a running op. Among events of the same time it now comes last."""
    at = s.heap_position[op]
    key = next_key(s, END)
    if time < s.heap_time[at]:
        rise(s, at, time, key, op)
    else:
        sink(s, at, time, key, op)


def next_key(s: State, priority: int) -> int:
    """Sort key of an event among events of the same time."""
    key = priority * PRIORITY + s.counters[SEQUENCE]
    s.counters[SEQUENCE] += 1
    return key


def rise(s: State, at: int, time: int, key: int, item: int) -> None:
    """Sift an event up from the free position `at`."""
    while at > 0:
        above = (at - 1) // 2
        if s.heap_time[above] < time or (s.heap_time[above] == time and s.heap_key[above] < key):
            break
        put(s, at, s.heap_time[above], s.heap_key[above], s.heap_item[above])
        at = above
    put(s, at, time, key, item)


def sink(s: State, at: int, time: int, key: int, item: int) -> None:
    """Sift an event down from the free position `at`."""
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
    """Write an event. For an END, record its position in the heap."""
    s.heap_time[at] = time
    s.heap_key[at] = key
    s.heap_item[at] = item
    if key < PRIORITY:
        s.heap_position[item] = at
