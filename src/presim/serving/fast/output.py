"""vLLM's `Scheduler.update_from_output`: tokens come back, requests end, their blocks are free again."""

from __future__ import annotations

from presim.serving.fast.policy import dequeue, tokens_of
from presim.serving.fast.pool import cache, release
from presim.serving.fast.state import (
    FINISHED,
    KNOBS,
    MAX_LEN,
    MAX_SEQS,
    PREEMPTED,
    RUNNING,
    Program,
    State,
)


def update(p: Program, s: State, replica: int, slot: int) -> int:
    """Take a batch's output in; returns how many requests ended. Those stand at the front of its places then."""
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    ended = 0
    for place in range(first, first + s.slot_count[p.slot_base[replica] + slot]):
        item = s.batch_item[place]
        tokens = s.batch_tokens[place]
        s.in_flight[item] -= tokens
        is_stale = 0
        if s.stale[item] > 0:
            is_stale = 1
            s.stale[item] -= tokens
        if s.status[item] == FINISHED or s.batch_samples[place] == 0:
            s.batch_samples[place] = 0
            continue
        if take_token(p, s, replica, item, is_stale):
            ended += 1
    if ended:
        compact(p, s, replica)
    return ended


def take_token(p: Program, s: State, replica: int, item: int, is_stale: int) -> int:
    """Append a token to a request; returns 1 where that was its last one."""
    s.tokens[item] += 1
    limit = min(tokens_of(p, replica, item), p.knobs[replica * KNOBS + MAX_LEN])
    before = s.status[item]
    had_placeholders = s.placeholders[item]
    if is_stale == 0 and had_placeholders > 0:
        s.placeholders[item] -= 1
    if is_stale == 0 and before == RUNNING and had_placeholders > 0:
        cache(p, s, item, s.computed[item] - s.in_flight[item])
    if s.tokens[item] < limit:
        return 0
    s.status[item] = FINISHED
    if before == PREEMPTED:
        dequeue(s, item)
    release(p, s, item)
    return 1


def compact(p: Program, s: State, replica: int) -> None:
    """Take those that ended out of the running requests."""
    first = p.row_base[replica]
    kept = 0
    for place in range(s.n_running[replica]):
        item = s.running[first + place]
        if s.status[item] == RUNNING:
            s.running[first + kept] = item
            kept += 1
    s.n_running[replica] = kept
