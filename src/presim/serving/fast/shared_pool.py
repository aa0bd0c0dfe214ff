"""The pool of cached blocks that all replicas share, as LMCache's server and Mooncake's store are.

It is one more tier (`presim.serving.fast.tiers`), behind those of all replicas. A prompt's blocks are written to it
once they are computed, and can be read by any replica as soon as they are there. Reads and writes take a replica's
port into and out of the network, which transfers from prefill to decode take, too, and the pool's own links.
"""

from __future__ import annotations

from presim.serving.fast.pool import key_of
from presim.serving.fast.serving_state import (
    BLOCK,
    DISK_LOST,
    FINISHED,
    HASH_AHEAD,
    KNOBS,
    MAX_SEQS,
    POOL_BLOCK_NS,
    POOL_BLOCKS,
    POOL_READ_FREE,
    POOL_STORED,
    POOL_WRITE_FREE,
    REPLICAS,
    SHARED_BLOCK_NS,
    Program,
    ServingState,
)
from presim.serving.fast.tiers import node_of, put_block


def pool_unit(p: Program) -> int:
    """The shared pool's number among tiers."""
    return 2 * p.fleet_knobs[REPLICAS]


def is_readable(p: Program, s: ServingState, key: int, now: int) -> bool:
    """Whether the shared pool has a block."""
    if p.fleet_knobs[POOL_BLOCKS] == 0:
        return False
    node = node_of(p, s, pool_unit(p), key)
    return node >= 0 and s.tier_ready[node] <= now


def touch_shared(p: Program, s: ServingState, key: int) -> None:
    """Make a block of the pool the most recently used."""
    put_block(p, s, pool_unit(p), key)


def read_shared(p: Program, s: ServingState, replica: int, blocks: int, now: int) -> int:
    """When so many blocks of the pool have reached a replica's node."""
    port_end = max(now, s.port_in[replica]) + blocks * p.knobs[replica * KNOBS + SHARED_BLOCK_NS]
    pool_end = max(now, s.counters[POOL_READ_FREE]) + blocks * p.fleet_knobs[POOL_BLOCK_NS]
    s.port_in[replica] = port_end
    s.counters[POOL_READ_FREE] = pool_end
    return max(port_end, pool_end)


def store_batch(p: Program, s: ServingState, replica: int, slot: int, now: int) -> None:
    """Write the blocks of prompts that a batch completed."""
    if p.fleet_knobs[POOL_BLOCKS] == 0:
        return
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    for batch_index in range(first, first + s.slot_count[p.slot_base[replica] + slot]):
        item = s.batch_item[batch_index]
        if s.stale[item] > 0 or s.status[item] == FINISHED:
            continue
        computed = s.computed[item] - s.in_flight[item] + s.batch_tokens[batch_index]
        store_prompt(p, s, replica, item, computed, now)


def store_prompt(p: Program, s: ServingState, replica: int, item: int, computed: int, now: int) -> None:
    """Write a prompt's full blocks up to ``computed`` tokens, those that the pool does not have."""
    knob = replica * KNOBS
    full = min(computed, p.prompt[item] - p.knobs[knob + HASH_AHEAD]) // p.knobs[knob + BLOCK]
    unit = pool_unit(p)
    while s.stored[item] < full:
        key = key_of(p, s, item, s.stored[item])
        s.stored[item] += 1
        if node_of(p, s, unit, key) >= 0:
            put_block(p, s, unit, key)
            continue
        port_end = max(now, s.port_out[replica]) + p.knobs[knob + SHARED_BLOCK_NS]
        pool_end = max(now, s.counters[POOL_WRITE_FREE]) + p.fleet_knobs[POOL_BLOCK_NS]
        s.port_out[replica] = port_end
        s.counters[POOL_WRITE_FREE] = pool_end
        s.counters[POOL_STORED] += 1
        if put_block(p, s, unit, key) != 0:
            s.counters[DISK_LOST] += 1
        s.tier_ready[node_of(p, s, unit, key)] = max(port_end, pool_end)
