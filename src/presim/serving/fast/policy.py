"""vLLM's `Scheduler.schedule`, decision by decision (vLLM 0.33, v1/core/sched/scheduler.py and async_scheduler.py).

Drafted tokens are handled as in vLLM: a decode gets its last token, all drafted tokens, and blocks for the tokens that
may follow. Rejected tokens are rolled back when the step's output is processed (`presim.serving.fast.output`).

Not modelled: encoder inputs, LoRA limits, KV connectors, Mamba alignment, sliding windows, decode context parallelism,
and `prefill_schedule_interval`.
"""

from __future__ import annotations

from presim.serving.fast.heap import send
from presim.serving.fast.pool import cache, extend, found, hit_blocks, key_of, release, touch
from presim.serving.fast.state import (
    ASYNC,
    BLOCK,
    BUDGET,
    BY_PRIORITY,
    CACHING,
    DECODE,
    DISK_BLOCKS,
    DRAFT,
    HOST_BLOCKS,
    KNOBS,
    LISTEN,
    LONG,
    MAX_LEN,
    MAX_SEQS,
    MOVING,
    PREEMPTED,
    PREFILL,
    RESERVE,
    ROLE,
    RUNNING,
    STAGES,
    WAITING,
    WATERMARK,
    Program,
    State,
)
from presim.serving.fast.tiers import bring_ns, keep_block, tier_of


def enqueue(p: Program, s: State, item: int) -> None:
    """Queue a request at its replica: at the end, or at the front if its blocks were just loaded from a tier."""
    insert(p, s, item, 1 if s.loaded[item] > 0 and p.knobs[s.replica[item] * KNOBS + ROLE] != DECODE else 0)


def insert(p: Program, s: State, item: int, first: int) -> None:
    """Insert a request into its queue: at the front or end, or by rank under the policy "priority"."""
    replica = s.replica[item]
    left = -1 if first else s.tail[replica]
    if p.knobs[replica * KNOBS + BY_PRIORITY]:
        left = s.tail[replica]
        while left >= 0 and p.rank[left] > p.rank[item]:
            left = s.before[left]
    right = s.head[replica] if left < 0 else s.next[left]
    s.before[item] = left
    s.next[item] = right
    if left < 0:
        s.head[replica] = item
    else:
        s.next[left] = item
    if right < 0:
        s.tail[replica] = item
    else:
        s.before[right] = item
    s.waiting[replica] += 1


def dequeue(s: State, item: int) -> None:
    """Remove a request from its queue."""
    replica = s.replica[item]
    left = s.before[item]
    right = s.next[item]
    if left < 0:
        s.head[replica] = right
    else:
        s.next[left] = right
    if right < 0:
        s.tail[replica] = left
    else:
        s.before[right] = left
    s.waiting[replica] -= 1


def preempt(p: Program, s: State, item: int) -> None:
    """Preempt a running request: free its blocks; it is recomputed later."""
    release(p, s, item)
    s.status[item] = PREEMPTED
    s.computed[item] = 0
    s.stale[item] = s.in_flight[item]
    s.placeholders[item] = 0
    s.preemptions[item] += 1
    insert(p, s, item, 1)


def blocks_for(p: Program, s: State, item: int, tokens: int) -> int:
    """Number of blocks for ``tokens`` tokens."""
    size = p.knobs[s.replica[item] * KNOBS + BLOCK]
    return (tokens + size - 1) // size


def schedule(p: Program, s: State, replica: int, slot: int, now: int) -> int:
    """Schedule the batch of a step into a slot; returns the number of preempted requests."""
    s.step[replica] += 1
    s.slot_count[p.slot_base[replica] + slot] = 0
    budget, preempted = schedule_running(p, s, replica, slot)
    if preempted == 0 and listens(p, s, replica):
        schedule_waiting(p, s, replica, slot, budget, now)
    after_schedule(p, s, replica, slot)
    return preempted


def listens(p: Program, s: State, replica: int) -> bool:
    """Whether this step polls for new requests: always in vLLM, at an interval of decode steps in SGLang.

    SGLang's `scheduler_recv_interval` (managers/scheduler_recv_skipper.py): a step with a prompt counts several times.
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


def add_to_batch(p: Program, s: State, replica: int, slot: int, item: int, tokens: int) -> None:
    """Append a request to a batch."""
    at = p.slot_base[replica] + slot
    place = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS] + s.slot_count[at]
    s.batch_item[place] = item
    s.batch_tokens[place] = tokens
    s.slot_count[at] += 1


def drop_from_batch(p: Program, s: State, replica: int, slot: int, item: int) -> int:
    """Remove a request from a batch; returns its tokens there, 0 if it was not in it."""
    at = p.slot_base[replica] + slot
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    dropped = 0
    for place in range(first, first + s.slot_count[at]):
        if dropped:
            s.batch_item[place - 1] = s.batch_item[place]
            s.batch_tokens[place - 1] = s.batch_tokens[place]
        elif s.batch_item[place] == item:
            dropped = s.batch_tokens[place]
    if dropped:
        s.slot_count[at] -= 1
    return dropped


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


def tokens_of(p: Program, s: State, replica: int, item: int) -> int:
    """Total tokens of a request when a replica finishes it."""
    if p.knobs[replica * KNOBS + ROLE] == PREFILL:
        return p.prompt[item] + s.kept[item] + 1
    return p.prompt[item] + p.output[item]


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
    most = threshold(p, s, replica)
    at = 0
    preempted = 0
    while at < s.n_running[replica] and budget > 0:
        item = s.running[first + at]
        tokens = new_tokens(p, s, replica, item, budget, most)
        if tokens <= 0:
            at += 1
            continue
        ahead = s.computed[item] + tokens + p.knobs[replica * KNOBS + DRAFT]
        need = blocks_for(p, s, item, min(ahead, p.knobs[replica * KNOBS + MAX_LEN]))
        gone = 0
        while gone == 0 and need - s.blocks[item] > s.n_free[replica]:
            place = victim_of(p, s, replica)
            victim = s.running[first + place]
            for other in range(first + place, first + s.n_running[replica] - 1):
                s.running[other] = s.running[other + 1]
            s.n_running[replica] -= 1
            if place < at:
                at -= 1
            budget += drop_from_batch(p, s, replica, slot, victim)
            preempt(p, s, victim)
            preempted += 1
            gone = 1 if victim == item else 0
        if gone:
            if p.knobs[replica * KNOBS + BY_PRIORITY]:
                continue
            break
        extend(p, s, item, need)
        cache(p, s, item, s.computed[item] + tokens)
        add_to_batch(p, s, replica, slot, item, tokens)
        budget -= tokens
        at += 1
    return budget, preempted


def schedule_waiting(p: Program, s: State, replica: int, slot: int, budget: int, now: int) -> None:
    """Schedule waiting requests in order until one does not fit."""
    most = threshold(p, s, replica)
    item = s.head[replica]
    while budget > 0 and item >= 0 and s.n_running[replica] < p.knobs[replica * KNOBS + MAX_SEQS]:
        following = s.next[item]
        if s.stale[item] > 0:  # its output is still in flight
            item = following
            continue
        hit = 0
        tiered = p.knobs[replica * KNOBS + HOST_BLOCKS] + p.knobs[replica * KNOBS + DISK_BLOCKS] > 0
        if p.knobs[replica * KNOBS + CACHING] and (tiered or s.loaded[item] == 0):
            size = p.knobs[replica * KNOBS + BLOCK]
            most_blocks = (s.tokens[item] - 1) // size
            hit = hit_blocks(p, s, item, replica, most_blocks)
            if tiered and s.loaded[item] == 0 and bring(p, s, item, hit, most_blocks, now):
                item = following
                continue
        tokens = admit(p, s, item, hit, budget, most)
        if tokens == 0:
            return
        budget -= tokens
        if s.scheduled[item] < 0:
            s.scheduled[item] = now
        dequeue(s, item)
        s.status[item] = RUNNING
        s.running[p.row_base[replica] + s.n_running[replica]] = item
        s.n_running[replica] += 1
        add_to_batch(p, s, replica, slot, item, tokens)
        s.unheard[replica] = p.knobs[replica * KNOBS + LISTEN]
        item = following


def bring(p: Program, s: State, item: int, hit: int, most: int, now: int) -> bool:
    """Start loading further cached blocks from host memory or disk; the request waits outside the queue meanwhile."""
    replica = s.replica[item]
    size = p.knobs[replica * KNOBS + BLOCK]
    counts_host = 0
    counts_disk = 0
    place = hit
    while place < most:
        key = key_of(p, s, item, place)
        tier = tier_of(p, s, replica, key)
        if tier < 0:
            break
        counts_host += 1 - tier
        counts_disk += tier
        first = 0 if p.knobs[replica * KNOBS + HOST_BLOCKS] > 0 else 1
        keep_block(p, s, replica, first, key)
        place += 1
    if place == hit:
        return False
    if s.status[item] == WAITING and s.moves[item] == 0:
        s.hits[item] = hit * size
        s.host_hits[item] = counts_host * size
        s.disk_hits[item] = counts_disk * size
    dequeue(s, item)
    s.status[item] = MOVING
    s.loaded[item] = place * size
    end = max(now, s.tier_free[replica]) + bring_ns(p, replica, counts_host, counts_disk)
    s.tier_free[replica] = end
    send(s, item, end)
    return True


def admit(p: Program, s: State, item: int, hit: int, budget: int, most: int) -> int:
    """Allocate blocks for a waiting request; returns its tokens in this step, 0 if they do not fit."""
    replica = s.replica[item]
    knob = replica * KNOBS
    size = p.knobs[knob + BLOCK]
    computed = hit * size
    if s.loaded[item] > 0:
        computed = max(computed, min(s.loaded[item], s.tokens[item] - 1))
    tokens = s.tokens[item] - computed
    if 0 < most < tokens:
        tokens = most
    tokens = min(tokens, budget)
    spare = p.knobs[knob + WATERMARK] if s.n_running[replica] > 0 else 0
    evictable = 0
    for block in range(hit):
        if s.refs[found(p, s, replica, key_of(p, s, item, block))] == 0:
            evictable += 1
    longest = p.knobs[knob + MAX_LEN]
    whole = max(blocks_for(p, s, item, min(s.tokens[item], longest)) - hit, 0) + evictable + spare
    if p.knobs[knob + RESERVE] and whole > s.n_free[replica]:
        return 0
    need = blocks_for(p, s, item, min(computed + tokens, longest))
    if max(need - hit, 0) + evictable + spare > s.n_free[replica]:
        return 0
    s.n_rows[replica] -= 1
    s.row[item] = s.rows[p.row_base[replica] + s.n_rows[replica]]
    for place in range(hit):
        block = found(p, s, replica, key_of(p, s, item, place))
        touch(s, replica, block)
        s.table[s.row[item] * p.row_blocks[0] + place] = block
    s.blocks[item] = hit
    s.cached[item] = hit
    if s.status[item] == WAITING and s.loaded[item] == 0 and s.moves[item] == 0:
        s.hits[item] = hit * size
    extend(p, s, item, need)
    s.computed[item] = computed
    s.loaded[item] = 0
    cache(p, s, item, computed + tokens)
    return tokens


def after_schedule(p: Program, s: State, replica: int, slot: int) -> None:
    """Count the batch's tokens as computed, so that the next step can be scheduled before this one returns."""
    knob = replica * KNOBS
    first = p.batch_base[replica] + slot * p.knobs[knob + MAX_SEQS]
    for place in range(first, first + s.slot_count[p.slot_base[replica] + slot]):
        item = s.batch_item[place]
        s.computed[item] += s.batch_tokens[place]
        s.in_flight[item] += s.batch_tokens[place]
        samples = max(s.computed[item] - s.tokens[item] - s.placeholders[item] + 1, 0)
        s.batch_samples[place] = samples
        s.decodes[item] = 1 if samples else 0
        if samples and p.knobs[knob + ASYNC]:
            s.placeholders[item] += samples
            s.eligible[item] = s.step[replica] + p.knobs[knob + STAGES]
