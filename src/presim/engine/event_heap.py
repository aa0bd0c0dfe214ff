"""Events: a binary heap ordered by (time, priority, sequence), in which the end of an op can be moved."""

from __future__ import annotations

from presim.engine.state import END, HEAP, PRIORITY, READY, SEQUENCE, LoopState


def wake(s: LoopState, slot: int, time: int) -> None:
    """Check the slot's head at `time`. A READY event that is already queued for the slot is never later."""
    if s.pending[slot] == 0:
        s.pending[slot] = 1
        push(s, time, READY, slot)


def push(s: LoopState, time: int, priority: int, item: int) -> None:
    """Add an event."""
    position = s.counters[HEAP]
    s.counters[HEAP] += 1
    rise(s, position, time, next_key(s, priority), item)


def pop(s: LoopState) -> None:
    """Remove the first event."""
    s.counters[HEAP] -= 1
    last = s.counters[HEAP]
    sink(s, 0, s.heap_time[last], s.heap_key[last], s.heap_item[last])


def move(s: LoopState, op: int, time: int) -> None:
    """Change the end of a running op. Among events of the same time it now comes last."""
    position = s.heap_position[op]
    key = next_key(s, END)
    if time < s.heap_time[position]:
        rise(s, position, time, key, op)
    else:
        sink(s, position, time, key, op)


def next_key(s: LoopState, priority: int) -> int:
    """Sort key of an event among events of the same time."""
    key = priority * PRIORITY + s.counters[SEQUENCE]
    s.counters[SEQUENCE] += 1
    return key


def rise(s: LoopState, position: int, time: int, key: int, item: int) -> None:
    """Sift an event up from the free `position`."""
    while position > 0:
        parent = (position - 1) // 2
        if s.heap_time[parent] < time or (s.heap_time[parent] == time and s.heap_key[parent] < key):
            break
        put(s, position, s.heap_time[parent], s.heap_key[parent], s.heap_item[parent])
        position = parent
    put(s, position, time, key, item)


def sink(s: LoopState, position: int, time: int, key: int, item: int) -> None:
    """Sift an event down from the free `position`."""
    size = s.counters[HEAP]
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            s.heap_time[right] < s.heap_time[child]
            or (s.heap_time[right] == s.heap_time[child] and s.heap_key[right] < s.heap_key[child])
        ):
            child = right
        if time < s.heap_time[child] or (time == s.heap_time[child] and key < s.heap_key[child]):
            break
        put(s, position, s.heap_time[child], s.heap_key[child], s.heap_item[child])
        position = child
    put(s, position, time, key, item)


def put(s: LoopState, position: int, time: int, key: int, item: int) -> None:
    """Write an event. For an END, record its position in the heap."""
    s.heap_time[position] = time
    s.heap_key[position] = key
    s.heap_item[position] = item
    if key < PRIORITY:
        s.heap_position[item] = position
