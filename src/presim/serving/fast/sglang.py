"""SGLang's `Scheduler.get_next_batch_to_run` (0.5.23, managers/scheduler.py): prompts first, else a token for each.

A batch is of prompts or of decodes, never of both (`enable_mixed_chunk` is off by default), and one prompt at a time is
cut into chunks. What is not here: speculative decoding's reservations, priorities with preemption, data-parallel
ranks' `prefill_delayer`, and the eviction of whole nodes of the radix tree: pages leave the cache one by one.
"""

from __future__ import annotations

from presim.serving.fast.admission import bring_blocks
from presim.serving.fast.batch import add_to_batch
from presim.serving.fast.loras import gather_loras, takes_lora
from presim.serving.fast.pool import extend, hit_blocks, share_full_blocks
from presim.serving.fast.queues import blocks_for, preempt
from presim.serving.fast.serving_state import (
    BLOCK,
    CACHING,
    COMPILING,
    DRAFT,
    KNOBS,
    LISTEN,
    LOOKAHEAD,
    MAX_LEN,
    MAX_SEQS,
    Program,
    ServingState,
)
from presim.serving.fast.sglang_prompts import (
    CONTINUE,
    NO_TOKEN,
    OTHER,
    add_next_chunk,
    admit_sglang,
    begin_pass,
    pass_outcome,
    remaining_output,
)
from presim.serving.fast.tiers import has_tiers


def schedule_sglang(p: Program, s: ServingState, replica: int, slot: int, now: int) -> int:
    """Fill the batch of a step; returns the number of retracted requests."""
    chunked = chunked_request(p, s, replica)
    if chunked >= 0:  # what is computed of it can be found from now on
        share_full_blocks(p, s, chunked, s.computed[chunked])
        s.full[replica] = 0
    poll(p, s, replica, now)
    s.slot_prompts[p.slot_base[replica] + slot] = 1
    if fill_with_prompts(p, s, replica, slot, chunked, now):
        s.unheard[replica] = p.knobs[replica * KNOBS + LISTEN]  # a step with prompts counts as many
        return 0
    s.slot_prompts[p.slot_base[replica] + slot] = 0
    return fill_with_decodes(p, s, replica, slot)


def chunked_request(p: Program, s: ServingState, replica: int) -> int:
    """The request whose prompt is computed in chunks, the last one of the running; -1: none."""
    if s.n_running[replica] == 0:
        return -1
    item = s.running[p.row_base[replica] + s.n_running[replica] - 1]
    return item if s.decodes[item] == 0 else -1


def poll(p: Program, s: ServingState, replica: int, now: int) -> None:
    """Look at arrivals at SGLang's `scheduler_recv_interval` (scheduler_components/recv_skipper.py)."""
    s.unheard[replica] += 1
    if s.n_running[replica] == 0 or s.unheard[replica] >= p.knobs[replica * KNOBS + LISTEN]:
        s.heard[replica] = now
        s.unheard[replica] = 0


def fill_with_prompts(p: Program, s: ServingState, replica: int, slot: int, chunked: int, now: int) -> int:
    """Admit those that wait; returns the number of prompts in the batch."""
    running = s.n_running[replica] - (1 if chunked >= 0 else 0)
    if running == 0:
        s.full[replica] = 0
    if chunked < 0:
        if s.full[replica] or s.waiting[replica] == 0:
            return 0
        if running >= p.knobs[replica * KNOBS + MAX_SEQS]:
            s.full[replica] = 1
            return 0
    begin_pass(p, s, replica, running)
    gather_loras(p, s, replica)
    if chunked >= 0:
        add_next_chunk(p, s, replica, slot, chunked)
    slot_index = p.slot_base[replica] + slot
    item = s.head[replica]
    while item >= 0 and pass_outcome(p, s, replica) != OTHER:
        following = s.next[item]
        absent = s.queued[item] > s.heard[replica] or s.status[item] == COMPILING or s.stale[item] > 0
        if absent or not takes_lora(p, s, replica, item):
            item = following
            continue
        if running + s.slot_count[slot_index] >= p.knobs[replica * KNOBS + MAX_SEQS]:
            s.full[replica] = 1
        if s.full[replica]:
            break
        hit = cached_blocks(p, s, replica, item, now)
        if hit >= 0:
            outcome = admit_sglang(p, s, replica, slot, item, hit, running, now)
            if outcome != CONTINUE:
                if outcome == NO_TOKEN:
                    s.full[replica] = 1 if s.slot_count[slot_index] + running > 0 else 0
                break
        item = following
    if running == 0:
        s.full[replica] = 0  # the flag is that of a batch of no one, which the next step drops
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    for batch_index in range(first, first + s.slot_count[slot_index]):
        admitted = s.batch_item[batch_index]
        extend(p, s, admitted, blocks_for(p, s, admitted, s.computed[admitted] + s.batch_tokens[batch_index]))
    return s.slot_count[slot_index]


def cached_blocks(p: Program, s: ServingState, replica: int, item: int, now: int) -> int:
    """Leading blocks of a request in the cache; -1: it waits for others from host memory, disk or the shared pool."""
    knob = replica * KNOBS
    tiered = has_tiers(p, replica)
    if p.knobs[knob + CACHING] == 0 or (not tiered and s.loaded[item] > 0):
        return 0
    max_blocks = (s.tokens[item] - 1) // p.knobs[knob + BLOCK]
    hit = hit_blocks(p, s, item, replica, max_blocks)
    return -1 if tiered and s.loaded[item] == 0 and bring_blocks(p, s, item, hit, max_blocks, now) else hit


def fill_with_decodes(p: Program, s: ServingState, replica: int, slot: int) -> int:
    """A token for each running request that gets another; returns the number of those retracted for lack of memory."""
    first = p.row_base[replica]
    finishing = 0
    for row_index in range(first, first + s.n_running[replica]):
        finishing += is_finishing(p, s, replica, s.running[row_index])
    if finishing == s.n_running[replica]:
        s.full[replica] = 0
        return 0
    retracted = 0
    if missing_blocks(p, s, replica) > s.n_free[replica]:
        s.full[replica] = 0
        if finishing:
            return 0  # their memory is free in the next step
        retracted = 1
        retract_request(p, s, replica)
        while s.n_running[replica] > 1 and missing_blocks(p, s, replica) > s.n_free[replica]:
            retract_request(p, s, replica)
            retracted += 1
        sort_running(p, s, replica)
    if finishing:
        s.full[replica] = 0
    for row_index in range(first, first + s.n_running[replica]):
        item = s.running[row_index]
        if not is_finishing(p, s, replica, item):
            extend(p, s, item, decode_blocks(p, s, replica, item))
            add_to_batch(p, s, replica, slot, item, decode_tokens(p, s, replica, item), 0)
    return retracted


def is_finishing(p: Program, s: ServingState, replica: int, item: int) -> int:
    """1: its last token is in flight."""
    return 1 if s.placeholders[item] > 0 and remaining_output(p, s, replica, item) <= 1 else 0


def decode_tokens(p: Program, s: ServingState, replica: int, item: int) -> int:
    """Tokens of a decode in a step: its last one, and those drafted."""
    knob = replica * KNOBS
    tokens = s.tokens[item] + s.placeholders[item] - s.computed[item] + p.knobs[knob + DRAFT]
    return max(min(tokens, p.knobs[knob + MAX_LEN] - s.computed[item] - 1), 1)


def decode_blocks(p: Program, s: ServingState, replica: int, item: int) -> int:
    """Blocks of a request with the tokens of its next decode."""
    knob = replica * KNOBS
    tokens = s.computed[item] + decode_tokens(p, s, replica, item) + p.knobs[knob + LOOKAHEAD]
    return blocks_for(p, s, item, min(tokens, p.knobs[knob + MAX_LEN]))


def missing_blocks(p: Program, s: ServingState, replica: int) -> int:
    """Blocks that the next decodes need."""
    first = p.row_base[replica]
    count = 0
    for row_index in range(first, first + s.n_running[replica]):
        item = s.running[row_index]
        if not is_finishing(p, s, replica, item):
            count += max(decode_blocks(p, s, replica, item) - s.blocks[item], 0)
    return count


def retract_request(p: Program, s: ServingState, replica: int) -> None:
    """Send a request back to the queue: with the fewest output tokens, then the longest prompt, then the last."""
    first = p.row_base[replica]
    last = first + s.n_running[replica] - 1
    worst = first
    for row_index in range(first + 1, last + 1):
        if not is_retracted_later(p, s, s.running[row_index], s.running[worst]):
            worst = row_index
    item = s.running[worst]
    for row_index in range(worst, last):
        s.running[row_index] = s.running[row_index + 1]
    s.n_running[replica] -= 1
    preempt(p, s, item, 0)


def is_retracted_later(p: Program, s: ServingState, item: int, other: int) -> bool:
    """Whether a request is retracted later than another: it has more output tokens, or as many and a shorter prompt."""
    extra_tokens = (s.tokens[item] - p.prompt[item]) - (s.tokens[other] - p.prompt[other])
    return extra_tokens > 0 or (extra_tokens == 0 and p.prompt[item] < p.prompt[other])


def sort_running(p: Program, s: ServingState, replica: int) -> None:
    """Running requests stand in the order in which they would be retracted last."""
    first = p.row_base[replica]
    for end in range(first + 1, first + s.n_running[replica]):
        item = s.running[end]
        row_index = end
        while row_index > first and is_retracted_later(p, s, item, s.running[row_index - 1]):
            s.running[row_index] = s.running[row_index - 1]
            row_index -= 1
        s.running[row_index] = item
