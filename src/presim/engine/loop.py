"""The inner loop: hosts, streams and rendezvous as a discrete-event simulation.

This is plain Python over sequences of integers, compiled by `presim.engine.compiled` from this very source. It
indexes without looking: `presim.engine.program` builds arrays that point nowhere else.

Vocabulary: an *op* is a trace entry that concerns streams or blocks the host. A *slot* is one stream of one rank.
A slot's ops go through these states::

                     host reaches it        launch latency       all earlier ops of
                                            has passed           the slot have ended
    not issued ────────────────────► issued ───────────► ready ─────────────────────► at the head
                                                                                          │
       ended ◄── running ◄── resource taken (work), all members there (collective) ◄──────┤
         ▲                                                                                │
         └────────── at once (record), once the recording has ended (wait) ◄──────────────┘

The host needs no events of its own: what it waits for is always the end of an op, so it is walked ahead of time up
to the next op that blocks it, and goes on when that end is simulated. Times are integer nanoseconds.

A rank may be *open*: its host is a program that still runs, and asks for more than is known. Then nothing is simulated
from the moment on at which its host stands (the horizon), and `run` is called again once more is known
(`presim.engine.live`).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

# Lists where uncompiled, numpy int64 where compiled; mypy is told the former.
Column: TypeAlias = list[int]

# Codes of ops. The first four are put on streams, the others block the host.
RUN = 0  # work that takes an exclusive resource
MEET = 1  # a collective: starts when all simulated members are at it
RECORD = 2
WAIT = 3
EVENT_SYNC = 4
STREAM_SYNC = 5
DEVICE_SYNC = 6

# Resources of one rank of which each runs one op at a time.
COMPUTE = 0
COPY_H2D = 1
COPY_D2H = 2
COPY_PEER = 3
EXCLUSIVE = 4  # how many there are

# Events at the same time: what ends comes before what begins, so that an end and a start at the same nanosecond hand
# over the resource. After that: first pushed, first served.
END = 0  # item: op
READY = 1  # item: slot, whose head may be able to go
_PRIORITY = 1 << 60  # key = priority * _PRIORITY + sequence
_FOREVER = 1 << 62

# State of the op at the head of a slot.
OPEN = 0  # nobody has looked yet, or it is not ready
QUEUED = 1  # ready, and wants a resource
BLOCKED = 2  # waits for a recording

# Indices into State.counters.
HEAP = 0  # events in the heap
SEQUENCE = 1  # events pushed so far
CALLS = 2  # resources in State.called


class Program(NamedTuple):
    """The input of the loop. Ops of a rank are `stride` apart, in the order its host asks; so are its slots."""

    stride: Column  # [0] 1: one rank after the other; ranks that grow are interleaved
    rank_end: Column  # [rank] where the op after its last one would stand
    rank_open: Column  # [rank] 1: its host may ask for more
    slot_first_of: Column  # [rank] first slot
    slot_end: Column  # [rank] where the slot after its last one would stand
    slot_rank: Column  # [slot]
    slot_first: Column  # [slot] first op put on it, or -1
    slot_priority: Column  # [slot] lower is more urgent
    code: Column  # [op]
    host_ns: Column  # [op] CPU time since the op before
    slot: Column  # [op] slot it is put on, or waits for; -1: none
    following: Column  # [op] next op put on the same slot, or -1
    duration: Column  # [op] ns when running alone
    resource: Column  # [op] of RUN: COMPUTE..COPY_PEER
    target: Column  # [op] of WAIT and EVENT_SYNC: the recording, or -1: nothing to wait for
    match: Column  # [op] of MEET: which rendezvous, or -1: nobody else is simulated
    joins: Column  # [op] 1: part of one launch with the op before it on its slot
    match_needed: Column  # [match] ops that meet
    launch_latency: Column  # [0] ns from issue to ready
    sync_latency: Column  # [0] ns from an end on the device to the host that waited for it
    queue_depth: Column  # [0] ops issued and not ended on one slot before the next launch blocks the host


class State(NamedTuple):
    """What changes while the loop runs; -1 stands for: not yet."""

    issue: Column  # [op]
    start: Column  # [op]
    end: Column  # [op]
    host_op: Column  # [rank] next op of the host; where it stops, the op that blocks it
    host_time: Column  # [rank]
    host_spent: Column  # [rank] last op whose host_ns is in host_time
    outstanding: Column  # [slot] ops issued and not ended
    rank_outstanding: Column  # [rank] the same over all its slots
    last_end: Column  # [slot]
    rank_last_end: Column  # [rank]
    head: Column  # [slot] first op that has not begun, or -1
    head_state: Column  # [slot] OPEN, QUEUED, BLOCKED
    in_flight: Column  # [slot] ops that have begun and not ended; above 1 only within one launch
    pending: Column  # [slot] 1: a READY for it is in the heap. It is never later than it needs to be.
    running: Column  # [rank * EXCLUSIVE + resource] op, or -1
    queued: Column  # [rank * EXCLUSIVE + resource] slots that want it
    called: Column  # stack of resources to be given to somebody at the end of this moment
    is_called: Column  # [rank * EXCLUSIVE + resource] 1: stands in `called`
    waiter_first: Column  # [op] of RECORD: first slot that waits for it
    waiter_next: Column  # [slot]
    arrived: Column  # [match] ops that are at it
    match_first: Column  # [match] the last of them to arrive
    match_next: Column  # [op]
    heap_time: Column
    heap_key: Column
    heap_item: Column
    counters: Column
    horizon: Column  # [0] where the first host stands that may ask for more; nothing from there on is simulated


def run(p: Program, s: State) -> None:
    """Simulate until nothing can happen any more, or up to the horizon.

    Where no rank is open, ops that have no end then are in a deadlock.
    """
    s.horizon[0] = _FOREVER
    for rank in range(len(p.rank_end)):
        walk_host(p, s, rank, s.host_time[rank])
    while s.counters[HEAP] > 0 and s.heap_time[0] < s.horizon[0]:
        now = s.heap_time[0]
        while s.counters[HEAP] > 0 and s.heap_time[0] == now:
            key = s.heap_key[0]
            item = s.heap_item[0]
            pop(s)
            if key < _PRIORITY:
                complete(p, s, item, now)
                advance(p, s, p.slot[item], now)
            else:
                s.pending[item] = 0
                advance(p, s, item, now)
        # Only now is it known who wants what at this moment.
        while s.counters[CALLS] > 0:
            s.counters[CALLS] -= 1
            give(p, s, s.called[s.counters[CALLS]], now)


# The host


def walk_host(p: Program, s: State, rank: int, now: int) -> None:
    """Let the host go on until an op blocks it that depends on ends not simulated yet."""
    op = s.host_op[rank]
    time = s.host_time[rank]
    while op < p.rank_end[rank]:
        if s.host_spent[rank] != op:
            s.host_spent[rank] = op
            time += p.host_ns[op]
        if p.code[op] <= WAIT:
            slot = p.slot[op]
            if s.outstanding[slot] >= p.queue_depth[0] and p.joins[op] == 0:
                break
            time = max(time, now)  # no change, unless the host was blocked until now by a full queue
            issue(p, s, op, slot, time)
        else:
            s.issue[op] = time
            s.start[op] = time
            seen = sync_seen(p, s, op, rank)
            if seen < 0:
                break
            time = max(time, seen)
            s.end[op] = time
        op += p.stride[0]
    s.host_op[rank] = op
    s.host_time[rank] = time
    if p.rank_open[rank] == 1 and op >= p.rank_end[rank]:
        s.horizon[0] = min(s.horizon[0], time)


def issue(p: Program, s: State, op: int, slot: int, time: int) -> None:
    """Put an op on its stream."""
    s.issue[op] = time
    s.outstanding[slot] += 1
    s.rank_outstanding[p.slot_rank[slot]] += 1
    if s.head[slot] == op and (s.in_flight[slot] == 0 or p.joins[op] == 1):
        wake(s, slot, time + p.launch_latency[0])


def sync_seen(p: Program, s: State, op: int, rank: int) -> int:
    """When the host can know that what `op` waits for has ended; -1: not yet, 0: there is nothing to wait for."""
    if p.code[op] == EVENT_SYNC:
        target = p.target[op]
        if target < 0:
            return 0
        ended = s.end[target]
        if ended < 0:
            return -1
    elif p.code[op] == STREAM_SYNC:
        ended = s.last_end[p.slot[op]]
        if s.outstanding[p.slot[op]] > 0:
            return -1
    else:
        ended = s.rank_last_end[rank]
        if s.rank_outstanding[rank] > 0:
            return -1
    return ended + p.sync_latency[0] if ended >= 0 else 0


def host_can_go(p: Program, s: State, rank: int) -> bool:
    """Whether what blocks the host is over."""
    op = s.host_op[rank]
    if op >= p.rank_end[rank]:
        return False
    if p.code[op] <= WAIT:
        return s.outstanding[p.slot[op]] < p.queue_depth[0]
    return sync_seen(p, s, op, rank) >= 0


# Streams


def advance(p: Program, s: State, slot: int, now: int) -> None:
    """Begin what can begin at the head of a stream. Calling it once too often changes nothing."""
    while s.head_state[slot] == OPEN:
        op = s.head[slot]
        if op < 0 or s.issue[op] < 0 or (s.in_flight[slot] > 0 and p.joins[op] == 0):
            return
        ready = s.issue[op] + p.launch_latency[0]
        if ready > now:
            wake(s, slot, ready)
            return
        code = p.code[op]
        if code == RUN:
            want(p, s, slot, op)
        elif code == WAIT and p.target[op] >= 0 and s.end[p.target[op]] < 0:
            s.head_state[slot] = BLOCKED
            s.waiter_next[slot] = s.waiter_first[p.target[op]]
            s.waiter_first[p.target[op]] = slot
        else:
            s.head[slot] = p.following[op]
            s.in_flight[slot] += 1
            if code == MEET:
                arrive(p, s, op, now)
            else:
                s.start[op] = now
                complete(p, s, op, now)


def want(p: Program, s: State, slot: int, op: int) -> None:
    """Queue for the resource of `op`."""
    resource = p.slot_rank[slot] * EXCLUSIVE + p.resource[op]
    s.head_state[slot] = QUEUED
    s.queued[resource] += 1
    if s.running[resource] < 0:
        call(s, resource)


def call(s: State, resource: int) -> None:
    """Have a free resource given to somebody at the end of this moment."""
    if s.is_called[resource] == 0:
        s.is_called[resource] = 1
        s.called[s.counters[CALLS]] = resource
        s.counters[CALLS] += 1


def give(p: Program, s: State, resource: int, now: int) -> None:
    """Give a free resource to the most urgent stream; among equals to the op issued first."""
    s.is_called[resource] = 0
    rank = resource // EXCLUSIVE
    best = -1
    for slot in range(p.slot_first_of[rank], p.slot_end[rank], p.stride[0]):
        if s.head_state[slot] != QUEUED or p.resource[s.head[slot]] != resource % EXCLUSIVE:
            continue
        if best < 0 or p.slot_priority[slot] < p.slot_priority[best]:
            best = slot
        elif p.slot_priority[slot] == p.slot_priority[best] and s.head[slot] < s.head[best]:
            best = slot  # ops of a rank are numbered as they are issued
    op = s.head[best]
    s.queued[resource] -= 1
    s.running[resource] = op
    s.head_state[best] = OPEN
    s.head[best] = p.following[op]
    s.in_flight[best] += 1
    begin(p, s, op, now, p.duration[op])


def arrive(p: Program, s: State, op: int, now: int) -> None:
    """A collective is at the head of its stream: it starts together with the last of its members."""
    match = p.match[op]
    if match < 0:
        begin(p, s, op, now, p.duration[op])
        return
    s.arrived[match] += 1
    s.match_next[op] = s.match_first[match]
    s.match_first[match] = op
    if s.arrived[match] < p.match_needed[match]:
        return
    longest = 0
    member = op
    while member >= 0:
        longest = max(longest, p.duration[member])
        member = s.match_next[member]
    member = op
    while member >= 0:
        begin(p, s, member, now, longest)
        member = s.match_next[member]


def begin(p: Program, s: State, op: int, now: int, duration: int) -> None:
    """Device work starts to run.

    CONTENTION HOOK, the rate of running entries: everything runs at rate 1 from here to its end. A model of overlap
    gives each running op a rate, changes the rates of a rank's running ops here and in `complete`, and pushes a new
    END for each; an END that is not the op's latest is then to be ignored.
    """
    s.start[op] = now
    push(s, now + duration, END, op)


def complete(p: Program, s: State, op: int, now: int) -> None:
    """An op ends: free its resource, wake who waits for it. The caller advances its slot."""
    slot = p.slot[op]
    rank = p.slot_rank[slot]
    s.end[op] = now
    s.last_end[slot] = now
    s.rank_last_end[rank] = now
    s.in_flight[slot] -= 1
    s.outstanding[slot] -= 1
    s.rank_outstanding[rank] -= 1
    if p.code[op] == RUN:
        resource = rank * EXCLUSIVE + p.resource[op]
        s.running[resource] = -1
        if s.queued[resource] > 0:
            call(s, resource)
    elif p.code[op] == RECORD:
        waiter = s.waiter_first[op]
        while waiter >= 0:
            s.head_state[waiter] = OPEN
            wake(s, waiter, now)
            waiter = s.waiter_next[waiter]
    if host_can_go(p, s, rank):
        walk_host(p, s, rank, now)


# Events: a binary heap ordered by (time, priority, sequence)


def wake(s: State, slot: int, time: int) -> None:
    """Look at the slot's head at `time`; an event that is there already comes no later."""
    if s.pending[slot] == 0:
        s.pending[slot] = 1
        push(s, time, READY, slot)


def push(s: State, time: int, priority: int, item: int) -> None:
    """Add an event."""
    key = priority * _PRIORITY + s.counters[SEQUENCE]
    s.counters[SEQUENCE] += 1
    at = s.counters[HEAP]
    s.counters[HEAP] += 1
    while at > 0:
        above = (at - 1) // 2
        if s.heap_time[above] < time or (s.heap_time[above] == time and s.heap_key[above] < key):
            break
        s.heap_time[at] = s.heap_time[above]
        s.heap_key[at] = s.heap_key[above]
        s.heap_item[at] = s.heap_item[above]
        at = above
    s.heap_time[at] = time
    s.heap_key[at] = key
    s.heap_item[at] = item


def pop(s: State) -> None:
    """Remove the first event."""
    s.counters[HEAP] -= 1
    size = s.counters[HEAP]
    time = s.heap_time[size]
    key = s.heap_key[size]
    at = 0
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
        s.heap_time[at] = s.heap_time[below]
        s.heap_key[at] = s.heap_key[below]
        s.heap_item[at] = s.heap_item[below]
        at = below
    s.heap_time[at] = time
    s.heap_key[at] = key
    s.heap_item[at] = s.heap_item[size]
