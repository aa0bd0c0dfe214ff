"""vLLM's `Scheduler.update_from_output`, and SGLang's: append tokens, end requests, free their blocks."""

from __future__ import annotations

from presim.serving.fast.batch import final_tokens
from presim.serving.fast.pool import cache_full_blocks, release, share_full_blocks
from presim.serving.fast.queues import dequeue
from presim.serving.fast.serving_state import (
    ACCEPT,
    DRAFT,
    FINISHED,
    KNOBS,
    MAX_LEN,
    MAX_SEQS,
    PREEMPTED,
    RUNNING,
    SCHEDULER,
    SGLANG,
    VLLM,
    Program,
    ServingState,
)
from presim.serving.fast.windows import free_apart


def update(p: Program, s: ServingState, replica: int, slot: int) -> int:
    """Process a batch's output; returns the number of ended requests, which are moved to the front of the batch."""
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    ended = 0
    for batch_index in range(first, first + s.slot_count[p.slot_base[replica] + slot]):
        item = s.batch_item[batch_index]
        tokens = s.batch_tokens[batch_index]
        s.in_flight[item] -= tokens
        is_stale = 0
        if s.stale[item] > 0:
            is_stale = 1
            s.stale[item] -= tokens
        dropped = is_stale and p.knobs[replica * KNOBS + SCHEDULER] == SGLANG  # vLLM keeps what it sampled
        if dropped or s.status[item] == FINISHED or s.batch_samples[batch_index] == 0:
            s.batch_samples[batch_index] = 0
            continue
        if take_tokens(p, s, replica, item, batch_index, is_stale):
            ended += 1
        if p.knobs[replica * KNOBS + SCHEDULER] == SGLANG:
            insert_sglang(p, s, item, s.slot_prompts[p.slot_base[replica] + slot])
    if ended:
        s.full[replica] = 0
        compact(p, s, replica)
    return ended


def count_accepted(item: int, have: int, drafted: int, likely: int) -> int:
    """How many drafted tokens the model accepts, by a coin of each one's place; ``likely``: of a million, each."""
    count = 0
    while count < drafted:
        mixed = ((item + 1) * 2654435761 + (have + count) * 40503) & 0xFFFFFFFF
        mixed = ((mixed ^ (mixed >> 15)) * 73244475) & 0xFFFFFFFF
        mixed = (mixed ^ (mixed >> 13)) & 0xFFFFFFFF
        if mixed % 1_000_000 >= likely:
            break
        count += 1
    return count


def take_tokens(p: Program, s: ServingState, replica: int, item: int, batch_index: int, is_stale: int) -> int:
    """Append a step's token and those drafted that are accepted; returns 1 where its last one was among them."""
    limit = min(final_tokens(p, s, replica, item), p.knobs[replica * KNOBS + MAX_LEN])
    sampled = s.batch_samples[batch_index]
    num_accepted = (
        0
        if s.batch_padded[batch_index]
        else count_accepted(item, s.tokens[item], sampled - 1, p.knobs[replica * KNOBS + ACCEPT])
    )
    excess_tokens = max(s.tokens[item] + 1 + num_accepted - limit, 0)
    s.tokens[item] += 1 + num_accepted - excess_tokens
    before = s.status[item]
    had_placeholders = s.placeholders[item]
    if is_stale == 0 and before == RUNNING:
        s.computed[item] -= sampled - 1 - num_accepted + excess_tokens
    if is_stale == 0 and had_placeholders > 0:
        s.placeholders[item] -= sampled
    follows_vllm = p.knobs[replica * KNOBS + SCHEDULER] == VLLM
    late = had_placeholders > 0 or p.knobs[replica * KNOBS + DRAFT] > 0
    if follows_vllm and is_stale == 0 and before == RUNNING and late:
        cache_full_blocks(p, s, item, s.computed[item] - s.in_flight[item])
    if s.tokens[item] < limit:
        return 0
    s.status[item] = FINISHED
    if before == PREEMPTED:
        dequeue(s, item)
    if follows_vllm:
        free_apart(p, s, item, 0)
        release(p, s, item)
    return 1


def insert_sglang(p: Program, s: ServingState, item: int, prompts: int) -> None:
    """Cache a prompt that is computed, or all of a request that ended, whose blocks are freed."""
    ended = s.status[item] == FINISHED
    if ended or prompts:
        share_full_blocks(p, s, item, s.computed[item] - s.in_flight[item])
    if ended:
        release(p, s, item)


def compact(p: Program, s: ServingState, replica: int) -> None:
    """Remove ended requests from the running ones."""
    first = p.row_base[replica]
    num_running = 0
    for row_index in range(s.n_running[replica]):
        item = s.running[first + row_index]
        if s.status[item] == RUNNING:
            s.running[first + num_running] = item
            num_running += 1
    s.n_running[replica] = num_running
