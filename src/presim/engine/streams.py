"""Streams: start and complete the ops at their heads."""

from __future__ import annotations

from presim.engine.event_heap import push, wake
from presim.engine.hosts import advance_host, is_host_unblocked
from presim.engine.links import add_carrier, remove_carrier
from presim.engine.pace import account_work
from presim.engine.slowdown import add_active, mark_changed, remove_active
from presim.engine.state import (
    BLOCKED,
    END,
    EXCLUSIVE,
    GRANTS,
    MEET,
    OPEN,
    QUEUED,
    RECORD,
    RUN,
    SCALE,
    WAIT,
    LoopState,
    Program,
)


def advance(p: Program, s: LoopState, slot: int, now: int) -> None:
    """Start the ops at the head of a stream that can start. An unnecessary call changes nothing."""
    while s.head_state[slot] == OPEN:
        op = s.head[slot]
        if op < 0 or s.issue[op] < 0 or (s.in_flight[slot] > 0 and p.joins[op] == 0):
            return
        code = p.code[op]
        # With a live clock an op can become known late. It then starts after ops that have ended there meanwhile.
        ready = max(s.issue[op] + p.launch_latency[0], s.last_end[slot])
        if code == RUN:
            ready = max(ready, s.freed[p.slot_rank[slot] * EXCLUSIVE + p.resource[op]])
        elif code == WAIT and p.target[op] >= 0:
            ready = max(ready, s.end[p.target[op]])
        if ready > now:
            wake(s, slot, ready)
            return
        if code == RUN:
            queue_for_resource(p, s, slot, op)
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


def queue_for_resource(p: Program, s: LoopState, slot: int, op: int) -> None:
    """Queue a slot for the resource of `op`."""
    resource = p.slot_rank[slot] * EXCLUSIVE + p.resource[op]
    s.head_state[slot] = QUEUED
    s.queued[resource] += 1
    if s.running[resource] < 0:
        request_grant(s, resource)


def request_grant(s: LoopState, resource: int) -> None:
    """Mark a free resource to be granted at the end of this moment."""
    if s.is_to_grant[resource] == 0:
        s.is_to_grant[resource] = 1
        s.to_grant[s.counters[GRANTS]] = resource
        s.counters[GRANTS] += 1


def grant(p: Program, s: LoopState, resource: int, now: int) -> None:
    """Grant a free resource to the most urgent stream. Ties go to the op that was issued first."""
    s.is_to_grant[resource] = 0
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


def requeue(p: Program, s: LoopState, resource: int, now: int) -> None:
    """Let all slots queue again for a free resource, once all requests at this moment are known."""
    s.is_to_grant[resource] = 0
    rank = resource // EXCLUSIVE
    for slot in range(p.slot_first_of[rank], p.slot_end[rank], p.stride[0]):
        if s.head_state[slot] == QUEUED and p.resource[s.head[slot]] == resource % EXCLUSIVE:
            s.head_state[slot] = OPEN
            s.queued[resource] -= 1
            wake(s, slot, now)


def arrive(p: Program, s: LoopState, op: int, now: int) -> None:
    """Register a collective at the head of its stream. It starts when its last member arrives."""
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
    last = now  # later if `op` became known late
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
        s.uncontended_ns[member] = longest
        add_active(p, s, member)
        member = s.match_next[member]


def begin(p: Program, s: LoopState, op: int, now: int, duration: int) -> None:
    """Start device work of one op or, for a lead, of a whole rendezvous."""
    s.start[op] = now
    s.uncontended_ns[op] = duration
    s.lead[op] = op
    s.slowdown[op] = SCALE
    s.work_left[op] = duration
    s.since[op] = now
    push(s, now + duration, END, op)
    add_active(p, s, op)
    if add_carrier(p, s, op):
        mark_changed(s, p.slot_rank[p.slot[op]])


def finish(p: Program, s: LoopState, lead: int, now: int) -> None:
    """End an op and the other members of its rendezvous, and advance their streams."""
    match = p.match[lead]
    if s.limited_by_port[lead] == 1:
        account_work(s, lead, now)
    remove_carrier(p, s, lead)
    if match < 0:
        remove_active(p, s, lead)
        complete(p, s, lead, now)
        advance(p, s, p.slot[lead], now)
        return
    member = s.match_first[match]
    while member >= 0:
        remove_active(p, s, member)
        complete(p, s, member, now)
        advance(p, s, p.slot[member], now)
        member = s.match_next[member]


def complete(p: Program, s: LoopState, op: int, now: int) -> None:
    """End an op: free its resource and wake waiting slots. The caller advances the op's slot."""
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
            request_grant(s, resource)
    elif p.code[op] == RECORD:
        waiter = s.waiter_first[op]
        while waiter >= 0:
            s.head_state[waiter] = OPEN
            wake(s, waiter, now)
            waiter = s.waiter_next[waiter]
    if is_host_unblocked(p, s, rank):
        advance_host(p, s, rank, now)
