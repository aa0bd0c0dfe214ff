"""Which waiting requests a step admits: the second half of vLLM's `Scheduler.schedule`."""

from __future__ import annotations

from presim.serving.fast.arrival_heap import push_arrival
from presim.serving.fast.batch import add_to_batch
from presim.serving.fast.loras import gather_loras, note_lora, takes_lora
from presim.serving.fast.pool import cache_full_blocks, extend, find_block, hit_blocks, key_of, touch
from presim.serving.fast.queues import blocks_for, dequeue, pass_over
from presim.serving.fast.serving_state import (
    BLOCK,
    CACHING,
    COMPILING,
    DRAFT,
    DRAFT_SLOTS,
    HOST_BLOCKS,
    KNOBS,
    LISTEN,
    LOOKAHEAD,
    MAX_LEN,
    MAX_SEQS,
    MOVING,
    RESERVE,
    RUNNING,
    WAITING,
    WATERMARK,
    Program,
    ServingState,
)
from presim.serving.fast.shared_pool import is_readable, read_shared, touch_shared
from presim.serving.fast.tiers import bring_ns, has_tiers, keep_block, tier_of
from presim.serving.fast.windows import extend_apart, pages_apart, reserved_pages_apart


def schedule_waiting(
    p: Program, s: ServingState, replica: int, slot: int, budget: int, max_chunk: int, now: int, defers: bool
) -> None:
    """Admit those that wait, in their order, until one does not fit, or has a prompt that the step ``defers``."""
    slots = p.knobs[replica * KNOBS + DRAFT_SLOTS]
    batch_kind = batch_kind_of(p, s, replica, slot)
    gather_loras(p, s, replica)
    item = s.head[replica]
    while budget > slots and item >= 0 and s.n_running[replica] < p.knobs[replica * KNOBS + MAX_SEQS]:
        following = s.next[item]
        if s.status[item] == COMPILING or s.stale[item] > 0 or not takes_lora(p, s, replica, item):
            pass_over(s, item)
            item = following
            continue
        hit = 0
        tiered = has_tiers(p, replica)
        if p.knobs[replica * KNOBS + CACHING] and (tiered or s.loaded[item] == 0):
            most_blocks = (s.tokens[item] - 1) // p.knobs[replica * KNOBS + BLOCK]
            hit = hit_blocks(p, s, item, replica, most_blocks)
            if tiered and s.loaded[item] == 0 and bring_blocks(p, s, item, hit, most_blocks, now):
                item = following
                continue
        if defers and known_tokens(p, s, item, hit) < s.tokens[item] - 1:
            return
        padding = draft_padding(p, s, item, hit, batch_kind)
        tokens = admit(p, s, item, hit, budget - slots, max_chunk, padding)
        if tokens == 0:
            return
        budget -= tokens + slots
        if s.scheduled[item] < 0:
            s.scheduled[item] = now
        if known_tokens(p, s, item, hit) < s.tokens[item] - 1:
            s.prefilled[replica] = s.executed[replica] + 1
        dequeue(s, item)
        s.status[item] = RUNNING
        s.running[p.row_base[replica] + s.n_running[replica]] = item
        s.n_running[replica] += 1
        note_lora(p, s, replica, item)
        add_to_batch(p, s, replica, slot, item, tokens, padding)
        s.unheard[replica] = p.knobs[replica * KNOBS + LISTEN]
        item = following


def known_tokens(p: Program, s: ServingState, item: int, hit: int) -> int:
    """Tokens of a waiting request that need not be computed: found in the cache, or loaded."""
    computed = hit * p.knobs[s.replica[item] * KNOBS + BLOCK]
    if s.loaded[item] > 0:
        computed = max(computed, min(s.loaded[item], s.tokens[item] - 1))
    return computed


def batch_kind_of(p: Program, s: ServingState, replica: int, slot: int) -> int:
    """What the running requests of a step are: 2 decodes, 1 none, 0 also prompts."""
    count = s.slot_count[p.slot_base[replica] + slot]
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    for batch_index in range(first, first + count):
        if s.decodes[s.batch_item[batch_index]] == 0:
            return 0
    return 2 if count > 0 else 1


def draft_padding(p: Program, s: ServingState, item: int, hit: int, batch_kind: int) -> int:
    """Tokens added to a request of which one is to be computed, so that it is as long as a decode with drafts."""
    knob = s.replica[item] * KNOBS
    drafted = p.knobs[knob + DRAFT]
    computed = known_tokens(p, s, item, hit)
    if drafted == 0 or s.tokens[item] - computed != 1 or batch_kind == 0 or (batch_kind == 1 and computed == 0):
        return 0
    return drafted if computed + drafted + 2 <= p.knobs[knob + MAX_LEN] else 0


def bring_blocks(p: Program, s: ServingState, item: int, hit: int, max_blocks: int, now: int) -> bool:
    """Bring a request's blocks behind those of the GPU back from host memory, disk or the pool that replicas share.

    It waits beside the queue.
    """
    replica = s.replica[item]
    size = p.knobs[replica * KNOBS + BLOCK]
    counts_host = 0
    counts_disk = 0
    counts_shared = 0
    block_index = hit
    while block_index < max_blocks:
        key = key_of(p, s, item, block_index)
        tier = tier_of(p, s, replica, key)
        if tier < 0 and not is_readable(p, s, key, now):
            break
        if tier < 0:
            counts_shared += 1
            touch_shared(p, s, key)
        else:
            counts_host += 1 - tier
            counts_disk += tier
        first = 0 if p.knobs[replica * KNOBS + HOST_BLOCKS] > 0 else 1
        if tier >= 0 or first == 0:
            keep_block(p, s, replica, first, key)
        block_index += 1
    if block_index == hit:
        return False
    if s.status[item] == WAITING and s.moves[item] == 0:
        s.hits[item] = hit * size
        s.host_hits[item] = counts_host * size
        s.disk_hits[item] = counts_disk * size
        s.shared_hits[item] = counts_shared * size
    dequeue(s, item)
    s.status[item] = MOVING
    s.loaded[item] = block_index * size
    arrived = read_shared(p, s, replica, counts_shared, now) if counts_shared > 0 else now
    end = max(arrived, s.tier_free[replica]) + bring_ns(p, replica, counts_host + counts_shared, counts_disk)
    s.tier_free[replica] = end
    push_arrival(s, item, end)
    return True


def admit(p: Program, s: ServingState, item: int, hit: int, budget: int, max_chunk: int, padding: int) -> int:
    """Give a waiting request its blocks; returns its tokens in this step, 0 where they do not fit."""
    replica = s.replica[item]
    knob = replica * KNOBS
    size = p.knobs[knob + BLOCK]
    computed = known_tokens(p, s, item, hit)
    tokens = s.tokens[item] - computed + padding
    if padding > 0 and tokens > budget:
        return 0
    if 0 < max_chunk < tokens:
        tokens = max_chunk
    tokens = min(tokens, budget)
    spare = p.knobs[knob + WATERMARK] if s.n_running[replica] > 0 else 0
    evictable = 0
    for block in range(hit):
        if s.refs[find_block(p, s, replica, key_of(p, s, item, block))] == 0:
            evictable += 1
    longest = p.knobs[knob + MAX_LEN]
    needed_pages = max(blocks_for(p, s, item, min(s.tokens[item], longest)) - hit, 0) + evictable + spare
    needed_pages += reserved_pages_apart(p, replica, min(s.tokens[item], longest), computed)
    if p.knobs[knob + RESERVE] and needed_pages > s.n_free[replica]:
        return 0
    ahead = min(computed + tokens + p.knobs[knob + LOOKAHEAD], longest)
    need = blocks_for(p, s, item, ahead)
    apart_pages = pages_apart(p, s, item, replica, ahead, computed)
    if max(need - hit, 0) + apart_pages + evictable + spare > s.n_free[replica]:
        return 0
    s.n_rows[replica] -= 1
    s.row[item] = s.rows[p.row_base[replica] + s.n_rows[replica]]
    for block_index in range(hit):
        block = find_block(p, s, replica, key_of(p, s, item, block_index))
        touch(s, replica, block)
        s.table[s.row[item] * p.row_blocks[0] + block_index] = block
    s.blocks[item] = hit
    s.cached[item] = hit
    if s.status[item] == WAITING and s.loaded[item] == 0 and s.moves[item] == 0:
        s.hits[item] = hit * size
    extend(p, s, item, need)
    extend_apart(p, s, item, ahead, apart_pages)
    s.computed[item] = computed
    s.loaded[item] = 0
    cache_full_blocks(p, s, item, computed + tokens)
    return tokens
