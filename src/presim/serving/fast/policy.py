"""vLLM's `Scheduler.schedule`, decision by decision (vLLM 0.33, v1/core/sched/scheduler.py and async_scheduler.py).

Drafted tokens are handled as in vLLM: a decode gets its last token, all drafted tokens, and blocks for the tokens that
may follow. Rejected tokens are rolled back when the step's output is processed (`presim.serving.fast.output`).

What is not here: encoder inputs, KV connectors, chunks of prompts that end where a state is kept, and
`prefill_schedule_interval` of data-parallel ranks.
"""

from __future__ import annotations

from presim.serving.fast.admission import schedule_waiting
from presim.serving.fast.batch import add_to_batch, after_schedule, drop_from_batch, final_tokens
from presim.serving.fast.pool import cache_full_blocks, extend
from presim.serving.fast.queues import blocks_for, preempt
from presim.serving.fast.serving_state import (
    BUDGET,
    BY_PRIORITY,
    DRAFT,
    DRAFT_SLOTS,
    INTERVAL,
    KNOBS,
    LISTEN,
    LONG,
    LOOKAHEAD,
    MAX_LEN,
    SCHEDULER,
    SGLANG,
    Program,
    ServingState,
)
from presim.serving.fast.sglang import schedule_sglang
from presim.serving.fast.windows import extend_apart, free_passed_apart, pages_apart


def schedule(p: Program, s: ServingState, replica: int, slot: int, now: int) -> int:
    """Schedule the batch of a step into a slot; returns the number of preempted requests."""
    s.step[replica] += 1
    s.slot_count[p.slot_base[replica] + slot] = 0
    if p.knobs[replica * KNOBS + SCHEDULER] == SGLANG:
        preempted = schedule_sglang(p, s, replica, slot, now)
    else:
        defers = defers_prompts(p, s, replica)
        budget, preempted = schedule_running(p, s, replica, slot, defers)
        if preempted == 0 and polls_now(p, s, replica):
            schedule_waiting(p, s, replica, slot, budget, chunk_limit(p, s, replica), now, defers)
            if not defers:
                s.crowded[replica] = 1 if s.waiting[replica] > s.passed_over[replica] else 0
        note_step(p, s, replica, slot)
    after_schedule(p, s, replica, slot)
    return preempted


def defers_prompts(p: Program, s: ServingState, replica: int) -> bool:
    """Whether vLLM leaves this step to decodes alone: its last one with prompts is too few steps ago."""
    interval = p.knobs[replica * KNOBS + INTERVAL]
    if interval <= 1 or s.crowded[replica] or s.prefilled[replica] == 0:
        return False
    if s.executed[replica] + 1 - s.prefilled[replica] >= interval:
        return False
    first = p.row_base[replica]
    decoding = 0
    for row in range(first, first + s.n_running[replica]):
        decoding += s.decodes[s.running[row]]
    return decoding > 0


def note_step(p: Program, s: ServingState, replica: int, slot: int) -> None:
    """Count a step that has tokens."""
    if s.slot_count[p.slot_base[replica] + slot] > 0:
        s.executed[replica] += 1
    else:
        s.prefilled[replica] = min(s.prefilled[replica], s.executed[replica])  # its prompts were preempted again


def polls_now(p: Program, s: ServingState, replica: int) -> bool:
    """Whether this step polls for new requests: always in vLLM.

    An interval is SGLang's, and applies here to engines whose other decisions are taken as vLLM's.
    """
    interval = p.knobs[replica * KNOBS + LISTEN]
    if interval <= 1:
        return True
    s.unheard[replica] += 1
    if s.n_running[replica] > 0 and s.unheard[replica] < interval:
        return False
    s.unheard[replica] = 0
    return True


def chunk_limit(p: Program, s: ServingState, replica: int) -> int:
    """Largest chunk of one prompt in a step, in tokens; 0: no separate limit."""
    is_alone = s.n_running[replica] + s.waiting[replica] <= 1
    return 0 if is_alone else p.knobs[replica * KNOBS + LONG]


def victim_of(p: Program, s: ServingState, replica: int) -> int:
    """Index of the running request to preempt."""
    last = s.n_running[replica] - 1
    if p.knobs[replica * KNOBS + BY_PRIORITY] == 0:
        return last
    first = p.row_base[replica]
    worst = 0
    for row_index in range(1, last + 1):
        if p.rank[s.running[first + row_index]] > p.rank[s.running[first + worst]]:
            worst = row_index
    return worst


def new_tokens(p: Program, s: ServingState, replica: int, item: int, budget: int, max_chunk: int) -> int:
    """Tokens to schedule for a running request in this step."""
    knob = replica * KNOBS
    if s.placeholders[item] > 0 and s.computed[item] + 2 - s.placeholders[item] >= final_tokens(p, s, replica, item):
        return 0  # tokens in flight already include its last token
    if s.step[replica] < s.eligible[item]:
        return 0
    tokens = s.tokens[item] + s.placeholders[item] - s.computed[item]
    if tokens == 1 and s.decodes[item]:
        tokens += p.knobs[knob + DRAFT]
    if 0 < max_chunk < tokens:
        tokens = max_chunk
    return min(tokens, budget, p.knobs[knob + MAX_LEN] - s.computed[item] - 1)


def schedule_running(p: Program, s: ServingState, replica: int, slot: int, defers: bool) -> tuple[int, int]:
    """Schedule running requests, chunks of prompts unless the step ``defers`` them.

    Returns the remaining budget and the number of preemptions.
    """
    budget = p.knobs[replica * KNOBS + BUDGET]
    first = p.row_base[replica]
    slots = p.knobs[replica * KNOBS + DRAFT_SLOTS]
    max_chunk = chunk_limit(p, s, replica)
    row_index = 0
    preempted = 0
    while row_index < s.n_running[replica] and budget > slots:
        item = s.running[first + row_index]
        tokens = new_tokens(p, s, replica, item, budget - slots, max_chunk)
        if tokens <= 0 or (defers and s.decodes[item] == 0):
            row_index += 1
            continue
        ahead = s.computed[item] + tokens + p.knobs[replica * KNOBS + LOOKAHEAD]
        ahead = min(ahead, p.knobs[replica * KNOBS + MAX_LEN])
        need = blocks_for(p, s, item, ahead)
        free_passed_apart(p, s, item)
        apart_pages = pages_apart(p, s, item, replica, max(ahead, s.reach[item]), s.computed[item] - s.in_flight[item])
        is_preempted = 0
        while (
            is_preempted == 0
            and max(need - s.blocks[item], 0) + max(apart_pages - s.apart_pages[item], 0) > s.n_free[replica]
        ):
            victim_index = victim_of(p, s, replica)
            victim = s.running[first + victim_index]
            for other in range(first + victim_index, first + s.n_running[replica] - 1):
                s.running[other] = s.running[other + 1]
            s.n_running[replica] -= 1
            if victim_index < row_index:
                row_index -= 1
            dropped = drop_from_batch(p, s, replica, slot, victim)
            budget += dropped + slots if dropped else 0
            preempt(p, s, victim, 1)
            preempted += 1
            is_preempted = 1 if victim == item else 0
        if is_preempted:
            if p.knobs[replica * KNOBS + BY_PRIORITY]:
                continue
            break
        extend(p, s, item, need)
        extend_apart(p, s, item, ahead, apart_pages)
        cache_full_blocks(p, s, item, s.computed[item] + tokens)
        if s.decodes[item] == 0:
            s.prefilled[replica] = s.executed[replica] + 1
        add_to_batch(p, s, replica, slot, item, tokens, 0)
        budget -= tokens + slots
        row_index += 1
    return budget, preempted
