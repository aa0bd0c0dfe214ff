"""Which waiting requests SGLang admits to a batch of prompts: its `PrefillAdder` (0.5.23, managers/schedule_policy.py).

Every request is taken to ask for exactly the output tokens that it gets (`ignore_eos`), so that SGLang reserves them
all, up to 4,096. With a prefix cache it adds these reservations up; without, it looks at the memory left at each
running request's end (`add_one_req_ignore_eos`).
"""

from __future__ import annotations

from presim.serving.fast.admission import known_tokens
from presim.serving.fast.batch import add_to_batch, final_tokens
from presim.serving.fast.loras import note_lora
from presim.serving.fast.pool import find_block, key_of, touch
from presim.serving.fast.queues import dequeue
from presim.serving.fast.serving_state import (
    BLOCK,
    BUDGET,
    CACHING,
    CHUNK,
    CURRENT,
    INPUT,
    KNOBS,
    MAX_LEN,
    MAX_SEQS,
    PROMPTS,
    RUNNING,
    SPENT,
    STATES,
    TOTAL,
    WAITING,
    Program,
    ServingState,
)

CONTINUE = 0  # AddReqResult
NO_TOKEN = 1
OTHER = 2
CLIP = 4096  # CLIP_MAX_NEW_TOKENS
_RESERVE = 1  # IGNORE_EOS_RESERVE_TOKENS


def begin_pass(p: Program, s: ServingState, replica: int, running: int) -> None:
    """Start a pass with the reservations of the first ``running`` requests."""
    spent_row = replica * SPENT
    total = 0
    for row_index in range(p.row_base[replica], p.row_base[replica] + running):
        total += min(remaining_output(p, s, replica, s.running[row_index]), CLIP)
    s.spent[spent_row + TOTAL] = total
    s.spent[spent_row + CURRENT] = 0
    s.spent[spent_row + INPUT] = p.knobs[replica * KNOBS + PROMPTS]
    s.spent[spent_row + CHUNK] = p.knobs[replica * KNOBS + BUDGET]
    s.spent[spent_row + STATES] = -1


def remaining_output(p: Program, s: ServingState, replica: int, item: int) -> int:
    """Output tokens that a request still gets."""
    return min(final_tokens(p, s, replica, item), p.knobs[replica * KNOBS + MAX_LEN]) - s.tokens[item]


def requested_output(p: Program, s: ServingState, replica: int, item: int) -> int:
    """Output tokens that a request asks for."""
    return min(final_tokens(p, s, replica, item), p.knobs[replica * KNOBS + MAX_LEN]) - p.prompt[item]


def round_to_pages(p: Program, replica: int, tokens: int) -> int:
    """Tokens of the pages that hold so many."""
    size = p.knobs[replica * KNOBS + BLOCK]
    return (tokens + size - 1) // size * size


def unreserved_tokens(p: Program, s: ServingState, replica: int, which: int, evictable: int) -> int:
    """Tokens of free pages, less ``evictable`` of them, beyond those reserved."""
    return (s.n_free[replica] - evictable) * p.knobs[replica * KNOBS + BLOCK] - s.spent[replica * SPENT + which]


def charge(p: Program, s: ServingState, replica: int, tokens: int, loaded: int, output: int) -> None:
    """Reserve for an admitted request; ``loaded``: tokens that are not computed, but need pages as well."""
    spent_row = replica * SPENT
    pages = round_to_pages(p, replica, tokens)
    taken_tokens = pages + round_to_pages(p, replica, loaded) + p.knobs[replica * KNOBS + BLOCK]
    s.spent[spent_row + CURRENT] += taken_tokens
    s.spent[spent_row + TOTAL] += taken_tokens + output
    s.spent[spent_row + INPUT] -= pages
    s.spent[spent_row + CHUNK] -= pages


def pass_outcome(p: Program, s: ServingState, replica: int) -> int:
    """Whether the pass goes on."""
    if min(unreserved_tokens(p, s, replica, TOTAL, 0), unreserved_tokens(p, s, replica, CURRENT, 0)) <= 0:
        return NO_TOKEN
    spent_row = replica * SPENT
    return OTHER if min(s.spent[spent_row + INPUT], s.spent[spent_row + CHUNK]) <= 0 else CONTINUE


def add_next_chunk(p: Program, s: ServingState, replica: int, slot: int, item: int) -> None:
    """The next chunk of a prompt that was cut."""
    tokens = s.tokens[item] - s.computed[item]
    room = min(s.spent[replica * SPENT + CHUNK], unreserved_tokens(p, s, replica, TOTAL, 0))
    if room <= 0:
        room = s.spent[replica * SPENT + CHUNK]
    add_to_batch(p, s, replica, slot, item, min(tokens, room), 0)
    output = 0 if tokens > room else min(requested_output(p, s, replica, item), CLIP)
    charge(p, s, replica, min(tokens, room), 0, output)


def admit_sglang(
    p: Program, s: ServingState, replica: int, slot: int, item: int, hit: int, running: int, now: int
) -> int:
    """Admit a waiting request if it fits; returns whether the pass goes on."""
    computed = known_tokens(p, s, item, hit)
    extend = s.tokens[item] - computed
    evictable = 0
    for block in range(hit):
        if s.refs[find_block(p, s, replica, key_of(p, s, item, block))] == 0:
            evictable += 1
    size = p.knobs[replica * KNOBS + BLOCK]
    loaded = computed - hit * size  # from host memory, disk or another engine
    chunk = s.spent[replica * SPENT + CHUNK]
    tokens = extend
    if p.knobs[replica * KNOBS + CACHING] == 0:
        if not memory_lasts(p, s, replica, slot, item, extend + loaded, running):
            return NO_TOKEN
        tokens = min(extend, chunk)
    else:
        output = min(remaining_output(p, s, replica, item), CLIP)
        if extend + loaded + output + size >= unreserved_tokens(p, s, replica, TOTAL, evictable):
            return NO_TOKEN
        if round_to_pages(p, replica, extend) > chunk:
            tokens = (computed + chunk // size * size) // size * size - computed
    if tokens <= 0:
        return OTHER
    admit_to_batch(p, s, replica, slot, item, hit, computed, tokens, now)
    output = 0 if tokens < extend else min(requested_output(p, s, replica, item), CLIP)
    charge(p, s, replica, tokens, loaded, output)
    return pass_outcome(p, s, replica)


def admit_to_batch(
    p: Program, s: ServingState, replica: int, slot: int, item: int, hit: int, computed: int, tokens: int, now: int
) -> None:
    """Take a request from the queue into the batch, with the cached blocks of its prompt."""
    s.n_rows[replica] -= 1
    s.row[item] = s.rows[p.row_base[replica] + s.n_rows[replica]]
    for block_index in range(hit):
        block = find_block(p, s, replica, key_of(p, s, item, block_index))
        touch(s, replica, block)
        s.table[s.row[item] * p.row_blocks[0] + block_index] = block
    s.blocks[item] = hit
    s.cached[item] = hit
    if s.status[item] == WAITING and s.loaded[item] == 0 and s.moves[item] == 0:
        s.hits[item] = hit * p.knobs[replica * KNOBS + BLOCK]
    s.computed[item] = computed
    s.loaded[item] = 0
    s.decodes[item] = 0
    if s.scheduled[item] < 0:
        s.scheduled[item] = now
    dequeue(s, item)
    s.status[item] = RUNNING
    s.running[p.row_base[replica] + s.n_running[replica]] = item
    s.n_running[replica] += 1
    note_lora(p, s, replica, item)
    add_to_batch(p, s, replica, slot, item, tokens, 0)


def memory_lasts(p: Program, s: ServingState, replica: int, slot: int, item: int, extend: int, running: int) -> bool:
    """Whether memory lasts until each running request ends, if this one joins."""
    need = round_to_pages(p, replica, extend) + p.knobs[replica * KNOBS + BLOCK]
    now_free = unreserved_tokens(p, s, replica, CURRENT, 0)
    if need > min(now_free, unreserved_tokens(p, s, replica, TOTAL, 0)):
        return False
    list_ends(p, s, replica, slot, item, running)
    first = p.row_base[replica]
    count = s.spent[replica * SPENT + STATES]
    freed = 0
    for index in range(count):
        alive = count - index
        if now_free - need + freed - s.remaining_tokens[first + index] * alive <= _RESERVE * alive:
            return False
        freed += s.held_tokens[first + index]
    return True


def list_ends(p: Program, s: ServingState, replica: int, slot: int, item: int, running: int) -> None:
    """List what running and admitted requests have left and hold, by when they end, with one more request."""
    first = p.row_base[replica]
    count_index = replica * SPENT + STATES
    if s.spent[count_index] >= 0:
        last = first + s.spent[count_index] - 1
        row_index = first
        while row_index < last and remaining_output(p, s, replica, item) > s.remaining_tokens[row_index]:
            row_index += 1
        insert_end(p, s, replica, item, row_index)
        return
    s.spent[count_index] = 0
    insert_end(p, s, replica, item, first)
    for row in range(first, first + running):
        insert_in_order(p, s, replica, s.running[row])
    batch = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    for row in range(batch, batch + s.slot_count[p.slot_base[replica] + slot]):
        insert_in_order(p, s, replica, s.batch_item[row])


def insert_in_order(p: Program, s: ServingState, replica: int, item: int) -> None:
    """List a request behind those that end no later."""
    row_index = p.row_base[replica] + s.spent[replica * SPENT + STATES]
    while row_index > p.row_base[replica] and s.remaining_tokens[row_index - 1] > remaining_output(p, s, replica, item):
        row_index -= 1
    insert_end(p, s, replica, item, row_index)


def insert_end(p: Program, s: ServingState, replica: int, item: int, row_index: int) -> None:
    """List a request at a place, if it gets more tokens."""
    remaining_tokens = remaining_output(p, s, replica, item)
    if remaining_tokens <= 0:
        return
    end = p.row_base[replica] + s.spent[replica * SPENT + STATES]
    for other in range(end, row_index, -1):
        s.remaining_tokens[other] = s.remaining_tokens[other - 1]
        s.held_tokens[other] = s.held_tokens[other - 1]
    s.remaining_tokens[row_index] = remaining_tokens
    s.held_tokens[row_index] = s.tokens[item]
    s.spent[replica * SPENT + STATES] += 1
