"""Pages of layers that do not keep all tokens: sliding windows, chunks, and states, which share the pool of blocks.

vLLM gives each group of layers a block table (v1/core/single_type_kv_cache_manager.py, 0.33). Here the first group
that keeps all tokens has one (`presim.serving.fast.pool`), by which prefixes are found; of the others a request has a
number of pages, linked by `free_next`. A window frees what is behind it once a step is back, and a state takes a page
for a sequence, and one more while its prompt is computed in several blocks. Pages that were full are freed to the end
of the list of free blocks, as cached ones are, so that they push older content out as they do in vLLM; but a prefix is
found even where its window or state was evicted before it.
"""

from __future__ import annotations

from presim.serving.fast.pool import free_first, free_last, take_free_block
from presim.serving.fast.serving_state import (
    APART_BLOCK,
    APART_CAP,
    APART_COLUMNS,
    APART_GROUPS,
    APART_KIND,
    APART_WINDOW,
    CACHING,
    CHUNKED,
    KNOBS,
    SLIDING,
    STATES_KEPT,
    Program,
    ServingState,
)


def pages_apart(p: Program, s: ServingState, item: int, replica: int, tokens: int, settled: int) -> int:
    """Pages of a request in groups without a block table: of ``tokens``, the first ``settled`` of which are computed.

    Nothing of them is in flight any more.
    """
    count = 0
    for row in range(p.apart_first[replica], p.apart_first[replica + 1]):
        group = row * APART_COLUMNS
        size = p.apart_groups[group + APART_BLOCK]
        blocks = (tokens + size - 1) // size
        if p.apart_groups[group + APART_KIND] == STATES_KEPT:
            several = 1 if s.decodes[item] == 0 and blocks > 1 else 0
            blocks = min(p.apart_groups[group + APART_WINDOW] + several, p.apart_groups[group + APART_CAP])
        else:
            blocks = max(blocks - skipped_blocks(p, group, settled), 0)
        count += blocks * p.apart_groups[group + APART_GROUPS]
    return count


def skipped_blocks(p: Program, group: int, settled: int) -> int:
    """Leading blocks that a group's layers look back on no more; ``group``: of the group in `Program.apart_groups`."""
    size = p.apart_groups[group + APART_BLOCK]
    window = p.apart_groups[group + APART_WINDOW]
    if p.apart_groups[group + APART_KIND] == SLIDING:
        return max(settled - window + 1, 0) // size
    if p.apart_groups[group + APART_KIND] == CHUNKED:
        return settled // window * window // size
    return 0


def reserved_pages_apart(p: Program, replica: int, tokens: int, computed: int) -> int:
    """Pages in these groups that vLLM reserves for a request of so many tokens, of which some are computed."""
    count = 0
    for row in range(p.apart_first[replica], p.apart_first[replica + 1]):
        group = row * APART_COLUMNS
        size = p.apart_groups[group + APART_BLOCK]
        blocks = p.apart_groups[group + APART_CAP]
        if p.apart_groups[group + APART_KIND] != STATES_KEPT:
            blocks = max(min((tokens + size - 1) // size, blocks) - skipped_blocks(p, group, computed), 0)
        count += blocks * p.apart_groups[group + APART_GROUPS]
    return count


def extend_apart(p: Program, s: ServingState, item: int, tokens: int, pages: int) -> None:
    """Take pages until a request has so many, for ``tokens``."""
    replica = s.replica[item]
    s.reach[item] = max(s.reach[item], tokens)
    while s.apart_pages[item] < pages:
        block = take_free_block(p, s, replica)
        s.free_next[block] = s.apart_head[item]
        s.apart_head[item] = block
        s.apart_pages[item] += 1


def free_passed_apart(p: Program, s: ServingState, item: int) -> None:
    """Free pages that windows have passed."""
    replica = s.replica[item]
    if p.apart_first[replica] == p.apart_first[replica + 1] or s.apart_pages[item] == 0:
        return
    settled = s.computed[item] - s.in_flight[item]
    free_apart(p, s, item, pages_apart(p, s, item, replica, s.reach[item], settled))


def free_apart(p: Program, s: ServingState, item: int, pages: int) -> None:
    """Free pages until a request has at most so many."""
    replica = s.replica[item]
    while s.apart_pages[item] > pages:
        block = s.apart_head[item]
        s.apart_head[item] = s.free_next[block]
        s.apart_pages[item] -= 1
        if p.knobs[replica * KNOBS + CACHING]:
            free_last(p, s, replica, block)
        else:
            free_first(p, s, replica, block)
    if s.apart_pages[item] == 0:
        s.reach[item] = 0
