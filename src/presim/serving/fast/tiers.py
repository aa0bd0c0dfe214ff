"""Tiers for cached blocks evicted from the GPU: host memory, then disk, each with LRU eviction.

A tier of a replica is a list of nodes around a sentinel, least recently used first, and a hash table of their keys. A
block that is loaded stays in its tier; a block loaded from disk is in host memory, too, from then on.
"""

from __future__ import annotations

from presim.serving.fast.hash_table import drop_place, find_place
from presim.serving.fast.serving_state import (
    DEMOTED,
    DISK_BLOCK_NS,
    DISK_BLOCKS,
    DISK_LOST,
    HOST_BLOCK_NS,
    HOST_BLOCKS,
    KNOBS,
    POOL_BLOCKS,
    TIER_NS,
    Program,
    ServingState,
)


def demote(p: Program, s: ServingState, replica: int, key: int) -> None:
    """Store a block evicted from the GPU."""
    s.counters[DEMOTED] += 1
    keep_block(p, s, replica, 0 if p.knobs[replica * KNOBS + HOST_BLOCKS] > 0 else 1, key)


def keep_block(p: Program, s: ServingState, replica: int, tier: int, key: int) -> None:
    """Store a block in a tier as most recently used; a block evicted from host memory goes to disk, if there is one."""
    out = key
    while out != 0 and tier <= (1 if p.knobs[replica * KNOBS + DISK_BLOCKS] > 0 else 0):
        out = put_block(p, s, 2 * replica + tier, out)
        tier += 1
    if out != 0:
        s.counters[DISK_LOST] += 1


def put_block(p: Program, s: ServingState, unit: int, key: int) -> int:
    """Store a block as a tier's most recently used; returns the evicted key, 0 if none."""
    node = node_of(p, s, unit, key)
    out = 0
    base = p.tier_base[unit]
    first = p.tier_hash_base[unit]
    mask = p.tier_hash_base[unit + 1] - first - 1
    if node >= 0:
        unlink_node(s, node)
    elif s.tier_count[unit] < p.tier_base[unit + 1] - base - 1:
        s.tier_count[unit] += 1
        node = base + s.tier_count[unit]
    else:
        node = s.tier_next[base]
        out = s.tier_key[node]
        unlink_node(s, node)
        hash_index = find_place(s.tier_hash_key, first, mask, out)
        drop_place(s.tier_hash_key, s.tier_hash_node, first, mask, hash_index)
    hash_index = find_place(s.tier_hash_key, first, mask, key)
    s.tier_hash_key[hash_index] = key
    s.tier_hash_node[hash_index] = node
    s.tier_key[node] = key
    last = s.tier_prev[base]
    s.tier_next[last] = node
    s.tier_prev[node] = last
    s.tier_next[node] = base
    s.tier_prev[base] = node
    return out


def node_of(p: Program, s: ServingState, unit: int, key: int) -> int:
    """Node of a block in a tier; -1 if absent."""
    first = p.tier_hash_base[unit]
    mask = p.tier_hash_base[unit + 1] - first - 1
    hash_index = find_place(s.tier_hash_key, first, mask, key)
    return s.tier_hash_node[hash_index] if s.tier_hash_key[hash_index] == key else -1


def unlink_node(s: ServingState, node: int) -> None:
    """Remove a node from its tier's list."""
    s.tier_next[s.tier_prev[node]] = s.tier_next[node]
    s.tier_prev[s.tier_next[node]] = s.tier_prev[node]


def has_tiers(p: Program, replica: int) -> bool:
    """Whether a replica's cached blocks can come back from outside its GPUs."""
    knob = replica * KNOBS
    return p.knobs[knob + HOST_BLOCKS] + p.knobs[knob + DISK_BLOCKS] + p.fleet_knobs[POOL_BLOCKS] > 0


def tier_of(p: Program, s: ServingState, replica: int, key: int) -> int:
    """The first of a replica's own tiers with a block: 0 host memory, 1 disk, -1 none."""
    if p.knobs[replica * KNOBS + HOST_BLOCKS] > 0 and node_of(p, s, 2 * replica, key) >= 0:
        return 0
    if p.knobs[replica * KNOBS + DISK_BLOCKS] > 0 and node_of(p, s, 2 * replica + 1, key) >= 0:
        return 1
    return -1


def bring_ns(p: Program, replica: int, from_host: int, from_disk: int) -> int:
    """Time to load blocks; blocks from disk pass through host memory."""
    knob = replica * KNOBS
    ns = p.knobs[knob + HOST_BLOCK_NS] * (from_host + from_disk) + p.knobs[knob + DISK_BLOCK_NS] * from_disk
    return ns + p.knobs[knob + TIER_NS]


def empty_tiers(p: Program, s: ServingState, replica: int) -> None:
    """Empty a replica's tiers."""
    for unit in range(2 * replica, 2 * replica + 2):
        base = p.tier_base[unit]
        s.tier_next[base] = base
        s.tier_prev[base] = base
        s.tier_count[unit] = 0
        for hash_index in range(p.tier_hash_base[unit], p.tier_hash_base[unit + 1]):
            s.tier_hash_key[hash_index] = 0
