"""Hosts: each advances through its trace until an op blocks it."""

from __future__ import annotations

from presim.engine.event_heap import wake
from presim.engine.state import EVENT_SYNC, FETCH, STREAM_SYNC, WAIT, LoopState, Program


def advance_host(p: Program, s: LoopState, rank: int, now: int) -> None:
    """Advance the host to the next op that blocks it, or to the end of the known ops."""
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
            seen = sync_return_time(p, s, op, rank)
            if seen < 0:
                break
            if p.code[op] == FETCH:
                s.start[op] = max(time, seen)
                s.end[op] = s.start[op] + p.duration[op]
            else:
                time = max(time, seen)
                s.end[op] = time
        op += p.stride[0]
    s.host_op[rank] = op
    s.host_time[rank] = time
    if p.rank_open[rank] == 1 and op >= p.rank_end[rank]:
        s.horizon[0] = min(s.horizon[0], time)


def issue(p: Program, s: LoopState, op: int, slot: int, time: int) -> None:
    """Put an op on its stream."""
    s.issue[op] = time
    s.outstanding[slot] += 1
    s.rank_outstanding[p.slot_rank[slot]] += 1
    if s.head[slot] == op and (s.in_flight[slot] == 0 or p.joins[op] == 1):
        wake(s, slot, time + p.launch_latency[0])


def sync_return_time(p: Program, s: LoopState, op: int, rank: int) -> int:
    """When a host synchronisation returns, ns; -1 if that is not known yet, 0 if there is nothing to wait for.

    Of a FETCH: when its worker is free. Fetches are known to end as soon as the host has issued them.
    """
    if p.code[op] >= FETCH:
        return s.end[p.target[op]] if p.target[op] >= 0 else 0
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


def is_host_unblocked(p: Program, s: LoopState, rank: int) -> bool:
    """Whether the op that blocks the host no longer does."""
    op = s.host_op[rank]
    if op >= p.rank_end[rank]:
        return False
    if p.code[op] <= WAIT:
        return s.outstanding[p.slot[op]] < p.queue_depth[0]
    return sync_return_time(p, s, op, rank) >= 0
