"""Which waiting requests SGLang admits to a batch of prompts: its `PrefillAdder` (0.5.23, managers/schedule_policy.py).

Every request is taken to ask for exactly the output tokens that it gets (`ignore_eos`), so that SGLang reserves them
all, up to 4,096. With a prefix cache it adds these reservations up; without, it looks at the memory left at each
running request's end (`add_one_req_ignore_eos`).
"""

from __future__ import annotations

from presim.serving.fast.admission import known_tokens
from presim.serving.fast.batch import add_to_batch, tokens_of
from presim.serving.fast.loras import note_lora
from presim.serving.fast.pool import found, key_of, touch
from presim.serving.fast.queues import dequeue
from presim.serving.fast.state import (
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
    State,
)

CONTINUE = 0  # AddReqResult
NO_TOKEN = 1
OTHER = 2
CLIP = 4096  # CLIP_MAX_NEW_TOKENS
_RESERVE = 1  # IGNORE_EOS_RESERVE_TOKENS


def begin(p: Program, s: State, replica: int, running: int) -> None:
    """Start a pass with the reservations of the first ``running`` requests."""
    at = replica * SPENT
    total = 0
    for place in range(p.row_base[replica], p.row_base[replica] + running):
        total += min(left_of(p, s, replica, s.running[place]), CLIP)
    s.spent[at + TOTAL] = total
    s.spent[at + CURRENT] = 0
    s.spent[at + INPUT] = p.knobs[replica * KNOBS + PROMPTS]
    s.spent[at + CHUNK] = p.knobs[replica * KNOBS + BUDGET]
    s.spent[at + STATES] = -1


def left_of(p: Program, s: State, replica: int, item: int) -> int:
    """Output tokens that a request still gets."""
    return min(tokens_of(p, s, replica, item), p.knobs[replica * KNOBS + MAX_LEN]) - s.tokens[item]


def whole_of(p: Program, s: State, replica: int, item: int) -> int:
    """Output tokens that a request asks for."""
    return min(tokens_of(p, s, replica, item), p.knobs[replica * KNOBS + MAX_LEN]) - p.prompt[item]


def in_pages(p: Program, replica: int, tokens: int) -> int:
    """Tokens of the pages that hold so many."""
    size = p.knobs[replica * KNOBS + BLOCK]
    return (tokens + size - 1) // size * size


def remaining(p: Program, s: State, replica: int, which: int, evictable: int) -> int:
    """Tokens of free pages, less ``evictable`` of them, beyond those reserved."""
    return (s.n_free[replica] - evictable) * p.knobs[replica * KNOBS + BLOCK] - s.spent[replica * SPENT + which]


def charge(p: Program, s: State, replica: int, tokens: int, output: int) -> None:
    """Reserve for an admitted request."""
    at = replica * SPENT
    pages = in_pages(p, replica, tokens)
    s.spent[at + CURRENT] += pages + p.knobs[replica * KNOBS + BLOCK]
    s.spent[at + TOTAL] += pages + p.knobs[replica * KNOBS + BLOCK] + output
    s.spent[at + INPUT] -= pages
    s.spent[at + CHUNK] -= pages


def verdict(p: Program, s: State, replica: int) -> int:
    """Whether the pass goes on."""
    if min(remaining(p, s, replica, TOTAL, 0), remaining(p, s, replica, CURRENT, 0)) <= 0:
        return NO_TOKEN
    at = replica * SPENT
    return OTHER if min(s.spent[at + INPUT], s.spent[at + CHUNK]) <= 0 else CONTINUE


def go_on(p: Program, s: State, replica: int, slot: int, item: int) -> None:
    """The next chunk of a prompt that was cut."""
    rest = s.tokens[item] - s.computed[item]
    room = min(s.spent[replica * SPENT + CHUNK], remaining(p, s, replica, TOTAL, 0))
    if room <= 0:
        room = s.spent[replica * SPENT + CHUNK]
    add_to_batch(p, s, replica, slot, item, min(rest, room), 0)
    charge(p, s, replica, min(rest, room), 0 if rest > room else min(whole_of(p, s, replica, item), CLIP))


def admit_sglang(p: Program, s: State, replica: int, slot: int, item: int, hit: int, running: int, now: int) -> int:
    """Admit a waiting request if it fits; returns whether the pass goes on."""
    known = known_tokens(p, s, item, hit)
    extend = s.tokens[item] - known
    evictable = 0
    for block in range(hit):
        if s.refs[found(p, s, replica, key_of(p, s, item, block))] == 0:
            evictable += 1
    size = p.knobs[replica * KNOBS + BLOCK]
    chunk = s.spent[replica * SPENT + CHUNK]
    tokens = extend
    if p.knobs[replica * KNOBS + CACHING] == 0:
        if not lasts(p, s, replica, slot, item, extend, running):
            return NO_TOKEN
        tokens = min(extend, chunk)
    else:
        output = min(left_of(p, s, replica, item), CLIP)
        if extend + output + size >= remaining(p, s, replica, TOTAL, evictable):
            return NO_TOKEN
        if in_pages(p, replica, extend) > chunk:
            tokens = (known + chunk // size * size) // size * size - known
    if tokens <= 0:
        return OTHER
    take_in(p, s, replica, slot, item, hit, known, tokens, now)
    charge(p, s, replica, tokens, 0 if tokens < extend else min(whole_of(p, s, replica, item), CLIP))
    return verdict(p, s, replica)


def take_in(
    p: Program, s: State, replica: int, slot: int, item: int, hit: int, known: int, tokens: int, now: int
) -> None:
    """Take a request from the queue into the batch, with the cached blocks of its prompt."""
    s.n_rows[replica] -= 1
    s.row[item] = s.rows[p.row_base[replica] + s.n_rows[replica]]
    for place in range(hit):
        block = found(p, s, replica, key_of(p, s, item, place))
        touch(s, replica, block)
        s.table[s.row[item] * p.row_blocks[0] + place] = block
    s.blocks[item] = hit
    s.cached[item] = hit
    if s.status[item] == WAITING and s.loaded[item] == 0 and s.moves[item] == 0:
        s.hits[item] = hit * p.knobs[replica * KNOBS + BLOCK]
    s.computed[item] = known
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


def lasts(p: Program, s: State, replica: int, slot: int, item: int, extend: int, running: int) -> bool:
    """Whether memory lasts until each running request ends, if this one joins."""
    need = in_pages(p, replica, extend) + p.knobs[replica * KNOBS + BLOCK]
    now_free = remaining(p, s, replica, CURRENT, 0)
    if need > min(now_free, remaining(p, s, replica, TOTAL, 0)):
        return False
    list_ends(p, s, replica, slot, item, running)
    first = p.row_base[replica]
    count = s.spent[replica * SPENT + STATES]
    freed = 0
    for place in range(count):
        alive = count - place
        if now_free - need + freed - s.left[first + place] * alive <= _RESERVE * alive:
            return False
        freed += s.held[first + place]
    return True


def list_ends(p: Program, s: State, replica: int, slot: int, item: int, running: int) -> None:
    """List what running and admitted requests have left and hold, by when they end, with one more request."""
    first = p.row_base[replica]
    at = replica * SPENT + STATES
    if s.spent[at] >= 0:
        last = first + s.spent[at] - 1
        place = first
        while place < last and left_of(p, s, replica, item) > s.left[place]:
            place += 1
        insert_end(p, s, replica, item, place)
        return
    s.spent[at] = 0
    insert_end(p, s, replica, item, first)
    for row in range(first, first + running):
        insert_in_order(p, s, replica, s.running[row])
    batch = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    for row in range(batch, batch + s.slot_count[p.slot_base[replica] + slot]):
        insert_in_order(p, s, replica, s.batch_item[row])


def insert_in_order(p: Program, s: State, replica: int, item: int) -> None:
    """List a request behind those that end no later."""
    place = p.row_base[replica] + s.spent[replica * SPENT + STATES]
    while place > p.row_base[replica] and s.left[place - 1] > left_of(p, s, replica, item):
        place -= 1
    insert_end(p, s, replica, item, place)


def insert_end(p: Program, s: State, replica: int, item: int, place: int) -> None:
    """List a request at a place, if it gets more tokens."""
    left = left_of(p, s, replica, item)
    if left <= 0:
        return
    end = p.row_base[replica] + s.spent[replica * SPENT + STATES]
    for other in range(end, place, -1):
        s.left[other] = s.left[other - 1]
        s.held[other] = s.held[other - 1]
    s.left[place] = left
    s.held[place] = s.tokens[item]
    s.spent[replica * SPENT + STATES] += 1
