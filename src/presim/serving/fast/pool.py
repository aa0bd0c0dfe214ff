"""The block pool and its prefix cache; allocation, freeing and eviction follow vLLM's order.

Free blocks form a list between two sentinels. Blocks without cached content are freed to the front, cached ones to the
end; allocation takes the front. Cached content is found by a key (`key_of`) in an open-addressing hash table; blocks
with equal content form a chain in order of arrival.
"""

from __future__ import annotations

from presim.serving.fast.hash_table import drop_place, find_place
from presim.serving.fast.serving_state import (
    BLOCK,
    CACHING,
    DISK_BLOCKS,
    HASH_AHEAD,
    HOST_BLOCKS,
    KNOBS,
    SEGMENT,
    Program,
    ServingState,
)
from presim.serving.fast.tiers import demote, empty_tiers

_STREAM = 1 << 20  # most blocks of a stream or segment


def key_of(p: Program, s: ServingState, item: int, block: int) -> int:
    """What identifies a request's block of tokens and all before it (HASH_AHEAD: and the token behind it); never 0."""
    knob = s.replica[item] * KNOBS
    size = p.fleet_knobs[SEGMENT]
    first = p.segment_first[item]
    segment = ((block + 1) * p.knobs[knob + BLOCK] - 1 + p.knobs[knob + HASH_AHEAD]) // size if size > 0 else 0
    if size > 0 and segment < p.segment_first[item + 1] - first:  # a segment's id stands for all before it, too
        return (p.segments[first + segment] * _STREAM + block + 1) * 2
    return (p.stream[item] * _STREAM + block + 1) * 2 + 1


def hash_index_of(p: Program, s: ServingState, replica: int, key: int) -> int:
    """Position of a key in the hash table, or the empty position where it belongs."""
    first = p.hash_base[replica]
    return find_place(s.hash_key, first, p.hash_base[replica + 1] - first - 1, key)


def find_block(p: Program, s: ServingState, replica: int, key: int) -> int:
    """A cached block with this content, or -1."""
    hash_index = hash_index_of(p, s, replica, key)
    return s.hash_block[hash_index] if s.hash_key[hash_index] == key else -1


def cache_block(p: Program, s: ServingState, replica: int, key: int, block: int) -> None:
    """Add a block to the cache."""
    s.hash[block] = key
    s.twin[block] = -1
    hash_index = hash_index_of(p, s, replica, key)
    if s.hash_key[hash_index] != key:
        s.hash_key[hash_index] = key
        s.hash_block[hash_index] = block
        return
    other = s.hash_block[hash_index]
    while s.twin[other] >= 0:
        other = s.twin[other]
    s.twin[other] = block


def uncache(p: Program, s: ServingState, replica: int, block: int) -> None:
    """Remove a block from the cache."""
    hash_index = hash_index_of(p, s, replica, s.hash[block])
    s.hash[block] = 0
    other = s.hash_block[hash_index]
    if other != block:
        while s.twin[other] != block:
            other = s.twin[other]
        s.twin[other] = s.twin[block]
    elif s.twin[block] >= 0:
        s.hash_block[hash_index] = s.twin[block]
    else:
        first = p.hash_base[replica]
        drop_place(s.hash_key, s.hash_block, first, p.hash_base[replica + 1] - first - 1, hash_index)


def take_free_block(p: Program, s: ServingState, replica: int) -> int:
    """Take the first free block and remove it from the cache."""
    sentinel = p.base[replica]
    block = s.free_next[sentinel]
    _unlink(s, block)
    s.n_free[replica] -= 1
    key = s.hash[block]
    if key != 0:
        uncache(p, s, replica, block)
        if p.knobs[replica * KNOBS + HOST_BLOCKS] + p.knobs[replica * KNOBS + DISK_BLOCKS] > 0:
            demote(p, s, replica, key)
    s.refs[block] = 1
    return block


def touch(s: ServingState, replica: int, block: int) -> None:
    """Count one more user of a cached block."""
    if s.refs[block] == 0:
        _unlink(s, block)
        s.n_free[replica] -= 1
    s.refs[block] += 1


def _unlink(s: ServingState, block: int) -> None:
    s.free_next[s.free_prev[block]] = s.free_next[block]
    s.free_prev[s.free_next[block]] = s.free_prev[block]


def release(p: Program, s: ServingState, item: int) -> None:
    """Free all blocks of a request, the last one first."""
    replica = s.replica[item]
    row = s.row[item]
    if row < 0:
        return
    front = p.base[replica]
    back = p.base[replica + 1] - 1
    after = front  # blocks without content keep their order at the front
    for block_index in range(s.blocks[item] - 1, -1, -1):
        block = s.table[row * p.row_blocks[0] + block_index]
        s.refs[block] -= 1
        if s.refs[block] > 0:
            continue
        previous_block = s.free_prev[back]
        if s.hash[block] == 0:
            previous_block = after
            after = block
        next_block = s.free_next[previous_block]
        s.free_prev[block] = previous_block
        s.free_next[block] = next_block
        s.free_next[previous_block] = block
        s.free_prev[next_block] = block
        s.n_free[replica] += 1
    s.blocks[item] = 0
    s.cached[item] = 0
    s.row[item] = -1
    s.rows[p.row_base[replica] + s.n_rows[replica]] = row
    s.n_rows[replica] += 1


def extend(p: Program, s: ServingState, item: int, blocks: int) -> None:
    """Allocate blocks for a request until it has ``blocks``."""
    row = s.row[item] * p.row_blocks[0]
    while s.blocks[item] < blocks:
        s.table[row + s.blocks[item]] = take_free_block(p, s, s.replica[item])
        s.blocks[item] += 1


def cache_full_blocks(p: Program, s: ServingState, item: int, tokens: int) -> None:
    """Cache a request's full blocks up to ``tokens`` tokens."""
    knob = s.replica[item] * KNOBS
    if p.knobs[knob + CACHING] == 0:
        return
    full = min(tokens, s.tokens[item] - p.knobs[knob + HASH_AHEAD]) // p.knobs[knob + BLOCK]
    row = s.row[item] * p.row_blocks[0]
    while s.cached[item] < full:
        block = s.cached[item]
        cache_block(p, s, s.replica[item], key_of(p, s, item, block), s.table[row + block])
        s.cached[item] += 1


def share_full_blocks(p: Program, s: ServingState, item: int, tokens: int) -> None:
    """Cache a request's full blocks up to ``tokens`` tokens; for one that is cached already, take that, free the own.

    SGLang's `RadixCache.cache_unfinished_req` does so, where vLLM keeps both.
    """
    replica = s.replica[item]
    knob = replica * KNOBS
    if p.knobs[knob + CACHING] == 0:
        return
    full = min(tokens, s.tokens[item] - p.knobs[knob + HASH_AHEAD]) // p.knobs[knob + BLOCK]
    row = s.row[item] * p.row_blocks[0]
    while s.cached[item] < full:
        block_index = s.cached[item]
        key = key_of(p, s, item, block_index)
        own_block = s.table[row + block_index]
        other = find_block(p, s, replica, key)
        if other < 0:
            cache_block(p, s, replica, key, own_block)
        elif other != own_block:
            touch(s, replica, other)
            s.table[row + block_index] = other
            free_first(p, s, replica, own_block)
        s.cached[item] += 1


def free_last(p: Program, s: ServingState, replica: int, block: int) -> None:
    """Free a block whose content stays until all that are free now are taken."""
    back = p.base[replica + 1] - 1
    before = s.free_prev[back]
    s.refs[block] = 0
    s.free_prev[block] = before
    s.free_next[block] = back
    s.free_next[before] = block
    s.free_prev[back] = block
    s.n_free[replica] += 1


def free_first(p: Program, s: ServingState, replica: int, block: int) -> None:
    """Free a block without content."""
    front = p.base[replica]
    after = s.free_next[front]
    s.refs[block] = 0
    s.free_prev[block] = front
    s.free_next[block] = after
    s.free_next[front] = block
    s.free_prev[after] = block
    s.n_free[replica] += 1


def hit_blocks(p: Program, s: ServingState, item: int, replica: int, max_blocks: int) -> int:
    """Number of leading blocks of a request in a replica's cache."""
    count = 0
    while count < max_blocks and find_block(p, s, replica, key_of(p, s, item, count)) >= 0:
        count += 1
    return count


def clear(p: Program, s: ServingState, replica: int) -> None:
    """Reset the pool: all blocks and rows free, nothing cached."""
    front = p.base[replica]
    back = p.base[replica + 1] - 1
    for block in range(front, back):
        s.free_next[block] = block + 1
        s.free_prev[block + 1] = block
        s.refs[block] = 0
        s.hash[block] = 0
        s.twin[block] = -1
    s.n_free[replica] = back - front - 1
    for hash_index in range(p.hash_base[replica], p.hash_base[replica + 1]):
        s.hash_key[hash_index] = 0
    empty_tiers(p, s, replica)
    first = p.row_base[replica]
    s.n_rows[replica] = p.row_base[replica + 1] - first
    for row in range(s.n_rows[replica]):
        s.rows[first + row] = p.row_base[replica + 1] - 1 - row
