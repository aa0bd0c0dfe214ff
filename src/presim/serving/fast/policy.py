"""vLLM's `Scheduler.schedule`, decision by decision (vLLM 0.33, v1/core/sched/scheduler.py and async_scheduler.py).

Drafted tokens are handled as in vLLM: a decode gets its last token, all drafted tokens, and blocks for the tokens that
may follow. Rejected tokens are rolled back when the step's output is processed (`presim.serving.fast.output`).

What is not here: encoder inputs, KV connectors, chunks of prompts that end where a state is kept, decode context
parallelism, and `prefill_schedule_interval`.
"""

from __future__ import annotations

from presim.serving.fast.admission import schedule_waiting
from presim.serving.fast.batch import add_to_batch, after_schedule, drop_from_batch, tokens_of
from presim.serving.fast.pool import cache, extend
from presim.serving.fast.queues import blocks_for, preempt
from presim.serving.fast.sglang import schedule_sglang
from presim.serving.fast.state import (
    BUDGET,
    BY_PRIORITY,
    DRAFT,
    DRAFT_SLOTS,
    KNOBS,
    LISTEN,
    LONG,
    LOOKAHEAD,
    MAX_LEN,
    SCHEDULER,
    SGLANG,
    Program,
    State,
)
from presim.serving.fast.windows import leave_apart, pages_apart, reach_apart


def schedule(p: Program, s: State, replica: int, slot: int, now: int) -> int:
    """Schedule the batch of a step into a slot; returns the number of preempted requests."""
    s.step[replica] += 1
    s.slot_count[p.slot_base[replica] + slot] = 0
    if p.knobs[replica * KNOBS + SCHEDULER] == SGLANG:
        preempted = schedule_sglang(p, s, replica, slot, now)
    else:
        budget, preempted = schedule_running(p, s, replica, slot)
        if preempted == 0 and listens(p, s, replica):
            schedule_waiting(p, s, replica, slot, budget, threshold(p, s, replica), now)
    after_schedule(p, s, replica, slot)
    return preempted


def listens(p: Program, s: State, replica: int) -> bool:
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


def threshold(p: Program, s: State, replica: int) -> int:
    """Largest chunk of one prompt in a step, in tokens; 0: no separate limit."""
    alone = s.n_running[replica] + s.waiting[replica] <= 1
    return 0 if alone else p.knobs[replica * KNOBS + LONG]


def victim_of(p: Program, s: State, replica: int) -> int:
    """Index of the running request to preempt."""
    last = s.n_running[replica] - 1
    if p.knobs[replica * KNOBS + BY_PRIORITY] == 0:
        return last
    first = p.row_base[replica]
    worst = 0
    for place in range(1, last + 1):
        if p.rank[s.running[first + place]] > p.rank[s.running[first + worst]]:
            worst = place
    return worst


def new_tokens(p: Program, s: State, replica: int, item: int, budget: int, most: int) -> int:
    """Tokens to schedule for a running request in this step."""
    knob = replica * KNOBS
    if s.placeholders[item] > 0 and s.computed[item] + 2 - s.placeholders[item] >= tokens_of(p, s, replica, item):
        return 0  # tokens in flight already include its last token
    if s.step[replica] < s.eligible[item]:
        return 0
    tokens = s.tokens[item] + s.placeholders[item] - s.computed[item]
    if tokens == 1 and s.decodes[item]:
        tokens += p.knobs[knob + DRAFT]
    if 0 < most < tokens:
        tokens = most
    return min(tokens, budget, p.knobs[knob + MAX_LEN] - s.computed[item] - 1)


def schedule_running(p: Program, s: State, replica: int, slot: int) -> tuple[int, int]:
    """Schedule running requests; returns the remaining budget and the number of preemptions."""
    budget = p.knobs[replica * KNOBS + BUDGET]
    first = p.row_base[replica]
    slots = p.knobs[replica * KNOBS + DRAFT_SLOTS]
    most = threshold(p, s, replica)
    at = 0
    preempted = 0
    while at < s.n_running[replica] and budget > slots:
        item = s.running[first + at]
        tokens = new_tokens(p, s, replica, item, budget - slots, most)
        if tokens <= 0:
            at += 1
            continue
        ahead = s.computed[item] + tokens + p.knobs[replica * KNOBS + LOOKAHEAD]
        ahead = min(ahead, p.knobs[replica * KNOBS + MAX_LEN])
        need = blocks_for(p, s, item, ahead)
        leave_apart(p, s, item)
        apart = pages_apart(p, s, item, replica, max(ahead, s.reach[item]), s.computed[item] - s.in_flight[item])
        gone = 0
        while gone == 0 and max(need - s.blocks[item], 0) + max(apart - s.apart[item], 0) > s.n_free[replica]:
            place = victim_of(p, s, replica)
            victim = s.running[first + place]
            for other in range(first + place, first + s.n_running[replica] - 1):
                s.running[other] = s.running[other + 1]
            s.n_running[replica] -= 1
            if place < at:
                at -= 1
            dropped = drop_from_batch(p, s, replica, slot, victim)
            budget += dropped + slots if dropped else 0
            preempt(p, s, victim, 1)
            preempted += 1
            gone = 1 if victim == item else 0
        if gone:
            if p.knobs[replica * KNOBS + BY_PRIORITY]:
                continue
            break
        extend(p, s, item, need)
        reach_apart(p, s, item, ahead, apart)
        cache(p, s, item, s.computed[item] + tokens)
        add_to_batch(p, s, replica, slot, item, tokens, 0)
        budget -= tokens + slots
        at += 1
    return budget, preempted
