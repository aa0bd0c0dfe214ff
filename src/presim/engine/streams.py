"""Streams: starts, runs and completes the work at their heads."""

from __future__ import annotations

from presim.engine.heap import push, wake
from presim.engine.hosts import host_can_go, walk_host
from presim.engine.links import carry, release
from presim.engine.pace import settle
from presim.engine.slowdown import enter, leave, touch
from presim.engine.state import (
    BLOCKED,
    CALLS,
    END,
    EXCLUSIVE,
    MEET,
    OPEN,
    QUEUED,
    RECORD,
    RUN,
    SCALE,
    WAIT,
    Program,
    State,
)


def advance(p: Program, s: State, slot: int, now: int) -> None:
    """Begin what can begin at the head of a stream. Calling it once too often changes nothing."""
    while s.head_state[slot] == OPEN:
        op = s.head[slot]
        if op < 0 or s.issue[op] < 0 or (s.in_flight[slot] > 0 and p.joins[op] == 0):
            return
        code = p.code[op]
        # What a rank asks for late (presim.live) takes its place after what has ended there since; else that is over.
        ready = max(s.issue[op] + p.launch_latency[0], s.last_end[slot])
        if code == RUN:
            ready = max(ready, s.freed[p.slot_rank[slot] * EXCLUSIVE + p.resource[op]])
        elif code == WAIT and p.target[op] >= 0:
            ready = max(ready, s.end[p.target[op]])
        if ready > now:
            wake(s, slot, ready)
            return
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


def postpone(p: Program, s: State, resource: int, now: int) -> None:
    """Who queues for a free resource asks again, once it is known who else wants it at this moment."""
    s.is_called[resource] = 0
    rank = resource // EXCLUSIVE
    for slot in range(p.slot_first_of[rank], p.slot_end[rank], p.stride[0]):
        if s.head_state[slot] == QUEUED and p.resource[s.head[slot]] == resource % EXCLUSIVE:
            s.head_state[slot] = OPEN
            s.queued[resource] -= 1
            wake(s, slot, now)


def arrive(p: Program, s: State, op: int, now: int) -> None:
    """A collective is at the head of its stream: it starts together with the last of its members."""
    match = p.match[op]
    if match < 0:
        begin(p, s, op, now, p.duration[op])
        return
    s.arrived[match] += 1
    s.since[op] = now
    s.match_next[op] = s.match_first[match]
    s.match_first[match] = op
    if s.arrived[match] < p.match_needed[match]:
        return
    longest = 0
    last = now  # unless `op` comes late
    member = op
    while member >= 0:
        longest = max(longest, p.duration[member])
        last = max(last, s.since[member])
        s.lead[member] = op
        member = s.match_next[member]
    begin(p, s, op, last, longest)
    member = s.match_next[op]
    while member >= 0:
        s.start[member] = last
        s.alone[member] = longest
        enter(p, s, member)
        member = s.match_next[member]


def begin(p: Program, s: State, op: int, now: int, duration: int) -> None:
    """Device work starts to run, for itself or for all that it meets."""
    s.start[op] = now
    s.alone[op] = duration
    s.lead[op] = op
    s.pace[op] = SCALE
    s.left[op] = duration
    s.since[op] = now
    push(s, now + duration, END, op)
    enter(p, s, op)
    if carry(p, s, op):
        touch(s, p.slot_rank[p.slot[op]])


def finish(p: Program, s: State, lead: int, now: int) -> None:
    """What ran ends, on all ranks that met; then their streams go on."""
    match = p.match[lead]
    if s.by_port[lead] == 1:
        settle(s, lead, now)
    release(p, s, lead)
    if match < 0:
        leave(p, s, lead)
        complete(p, s, lead, now)
        advance(p, s, p.slot[lead], now)
        return
    member = s.match_first[match]
    while member >= 0:
        leave(p, s, member)
        complete(p, s, member, now)
        advance(p, s, p.slot[member], now)
        member = s.match_next[member]


def complete(p: Program, s: State, op: int, now: int) -> None:
    """An op ends: free its resource, wake who waits for it. The caller advances its slot."""
    slot = p.slot[op]
    rank = p.slot_rank[slot]
    s.end[op] = now
    s.last_end[slot] = max(now, s.last_end[slot])
    s.rank_last_end[rank] = max(now, s.rank_last_end[rank])
    s.in_flight[slot] -= 1
    s.outstanding[slot] -= 1
    s.rank_outstanding[rank] -= 1
    if p.code[op] == RUN:
        resource = rank * EXCLUSIVE + p.resource[op]
        s.running[resource] = -1
        s.freed[resource] = now
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
