"""An engine's queue of waiting requests, and the way back into it (vLLM 0.33, v1/core/sched/request_queue.py)."""

from __future__ import annotations

from presim.serving.fast.pool import release
from presim.serving.fast.serving_state import (
    BLOCK,
    BY_PRIORITY,
    DECODE,
    KNOBS,
    PREEMPTED,
    ROLE,
    Program,
    ServingState,
)
from presim.serving.fast.windows import free_apart


def enqueue(p: Program, s: ServingState, item: int) -> None:
    """Put a request into its replica's queue: a new one at the end, one with blocks brought back at the front."""
    insert(p, s, item, 1 if s.loaded[item] > 0 and p.knobs[s.replica[item] * KNOBS + ROLE] != DECODE else 0)


def insert(p: Program, s: ServingState, item: int, first: int) -> None:
    """Put a request into its queue: at the front or the end, or by its rank where the policy is priority."""
    replica = s.replica[item]
    previous = -1 if first else s.tail[replica]
    if p.knobs[replica * KNOBS + BY_PRIORITY]:
        previous = s.tail[replica]
        while previous >= 0 and p.rank[previous] > p.rank[item]:
            previous = s.before[previous]
    following = s.head[replica] if previous < 0 else s.next[previous]
    s.before[item] = previous
    s.next[item] = following
    if previous < 0:
        s.head[replica] = item
    else:
        s.next[previous] = item
    if following < 0:
        s.tail[replica] = item
    else:
        s.before[following] = item
    s.waiting[replica] += 1


def dequeue(s: ServingState, item: int) -> None:
    """Take a request out of its queue."""
    replica = s.replica[item]
    previous = s.before[item]
    following = s.next[item]
    if previous < 0:
        s.head[replica] = following
    else:
        s.next[previous] = following
    if following < 0:
        s.tail[replica] = previous
    else:
        s.before[following] = previous
    s.waiting[replica] -= 1
    s.passed_over[replica] -= s.was_passed[item]
    s.was_passed[item] = 0


def pass_over(s: ServingState, item: int) -> None:
    """Note that a waiting request could not be taken, whatever room there is (vLLM's `deferred_waiting`)."""
    s.passed_over[s.replica[item]] += 1 - s.was_passed[item]
    s.was_passed[item] = 1


def preempt(p: Program, s: ServingState, item: int, first: int) -> None:
    """Free a running request's blocks; it is computed again later. ``first``: it goes to the front of the queue."""
    free_apart(p, s, item, 0)
    release(p, s, item)
    s.status[item] = PREEMPTED
    s.computed[item] = 0
    s.stale[item] = s.in_flight[item]
    s.placeholders[item] = 0
    s.preemptions[item] += 1
    insert(p, s, item, first)


def blocks_for(p: Program, s: ServingState, item: int, tokens: int) -> int:
    """Blocks that hold so many tokens."""
    size = p.knobs[s.replica[item] * KNOBS + BLOCK]
    return (tokens + size - 1) // size
