"""Arrivals of requests, and the router that selects a replica."""

from __future__ import annotations

from presim.serving.fast.arrival_heap import pop_arrival, push_arrival, release_followers
from presim.serving.fast.pool import hit_blocks
from presim.serving.fast.queues import enqueue, pass_over
from presim.serving.fast.serving_state import (
    BLOCK,
    BLOCKS,
    BORN,
    COMPILING,
    CONCURRENCY,
    DECODE,
    DRAFT,
    DRAINING,
    DRAWN,
    DYNAMIC,
    FOREVER,
    GONE,
    HELD_HEAD,
    HELD_TAIL,
    IDLE,
    IN_FLIGHT,
    INPUT_LOAD_NS,
    INPUT_NS,
    INPUT_TOKEN_NS,
    KNOBS,
    KV_BYTES,
    LEAST_LOADED,
    LOOKAHEAD,
    MAX_LEN,
    MOVING,
    NOW,
    OPEN,
    PARKED,
    PARKED_HEAD,
    PARKED_TAIL,
    PORT_BPS,
    PORT_NS,
    POWER_OF_TWO,
    PREFIX,
    REFUSED,
    REPLICAS,
    REROUTED,
    ROLE,
    ROUTER,
    SCHEDULE,
    SERVING,
    SESSION,
    TURN,
    WAITING,
    Program,
    ServingState,
)
from presim.serving.fast.windows import reserved_pages_apart


def arrive(p: Program, s: ServingState) -> None:
    """Process the next arrival: from a client, at an engine, or at a decode replica."""
    now = s.heap_time[0]
    item = pop_arrival(s)
    s.counters[NOW] = now
    if s.status[item] == PARKED:
        transfer(p, s, item, now)
    elif s.status[item] == COMPILING:
        s.status[item] = WAITING
        wake_engine(s, s.replica[item], now)
    elif s.status[item] == WAITING or s.status[item] == MOVING:
        join_queue(p, s, item, now)
    elif s.status[item] == REROUTED or admit_to_router(p, s, item, now):
        dispatch(p, s, item, now)


def admit_to_router(p: Program, s: ServingState, item: int, now: int) -> bool:
    """Whether a client may send a request now; otherwise it is held back."""
    if 0 < p.fleet_knobs[CONCURRENCY] <= s.counters[IN_FLIGHT]:
        append_to_list(s, HELD_HEAD, HELD_TAIL, item)
        return False
    s.sent[item] = now
    s.counters[IN_FLIGHT] += 1
    return True


def dispatch(p: Program, s: ServingState, item: int, now: int) -> None:
    """Route a request to a replica."""
    replica = route(p, s, item, now)
    if replica < 0 and p.fleet_knobs[DYNAMIC]:
        park(s, item)
        return
    s.replica[item] = replica
    if replica < 0 or not fits_replica(p, item, replica):
        refuse(p, s, item, now)
        return
    s.load[replica] += 1
    s.status[item] = WAITING
    input_ns = (
        p.fleet_knobs[INPUT_NS]
        + p.prompt[item] * p.fleet_knobs[INPUT_TOKEN_NS]
        + s.load[replica] * p.fleet_knobs[INPUT_LOAD_NS]
    )
    if input_ns > 0:
        push_arrival(s, item, now + input_ns)
    else:
        join_queue(p, s, item, now)


def park(s: ServingState, item: int) -> None:
    """Hold a request at the router until a replica serves."""
    append_to_list(s, PARKED_HEAD, PARKED_TAIL, item)


def append_to_list(s: ServingState, head: int, tail: int, item: int) -> None:
    """Append a request to the linked list with these head and tail counters."""
    s.next[item] = -1
    if s.counters[head] < 0:
        s.counters[head] = item
    else:
        s.next[s.counters[tail]] = item
    s.counters[tail] = item


def unpark(s: ServingState, now: int) -> None:
    """Dispatch requests held at the router; those without a replica wait again."""
    item = s.counters[PARKED_HEAD]
    last = s.counters[PARKED_TAIL]
    s.counters[PARKED_HEAD] = -1
    s.counters[PARKED_TAIL] = -1
    while item >= 0:
        following = s.next[item] if item != last else -1
        s.status[item] = PARKED if s.status[item] == MOVING else REROUTED
        push_arrival(s, item, now)
        item = following


def fits_replica(p: Program, item: int, replica: int) -> bool:
    """Whether a replica can ever serve a request of this length."""
    knob = replica * KNOBS
    drafted = p.knobs[knob + DRAFT] + p.knobs[knob + LOOKAHEAD]
    longest = min(p.prompt[item] + p.output[item] + drafted, p.knobs[knob + MAX_LEN])
    size = p.knobs[knob + BLOCK]
    fits = (longest + size - 1) // size + reserved_pages_apart(p, replica, longest, 0) <= p.knobs[knob + BLOCKS] - 1
    return fits and p.prompt[item] < p.knobs[knob + MAX_LEN]


def refuse(p: Program, s: ServingState, item: int, now: int) -> None:
    """Refuse a request that no replica can serve; those that wait for it come as if it had ended."""
    s.status[item] = REFUSED
    s.counters[OPEN] -= 1
    s.counters[IN_FLIGHT] -= 1
    release_followers(p, s, item, now)


def join_queue(p: Program, s: ServingState, item: int, now: int) -> None:
    """Add a request to its engine's queue and wake an idle engine."""
    replica = s.replica[item]
    if s.up[replica] != SERVING and s.up[replica] != DRAINING:  # stopped while the request was on its way
        s.load[replica] -= 1
        s.loaded[item] = 0
        s.status[item] = REROUTED
        push_arrival(s, item, now)
        return
    compiles = p.grammar_ns[item] > 0 and p.knobs[replica * KNOBS + ROLE] != DECODE and s.queued[item] < 0
    if s.status[item] == WAITING and s.queued[item] < 0:
        s.queued[item] = now
    s.status[item] = COMPILING if compiles else WAITING
    if compiles:
        push_arrival(s, item, now + p.grammar_ns[item])
    if s.tokens[item] == 0:
        s.tokens[item] = p.prompt[item] + s.kept_tokens[item]
    enqueue(p, s, item)
    if compiles:
        pass_over(s, item)
    wake_engine(s, replica, now)


def wake_engine(s: ServingState, replica: int, now: int) -> None:
    """Have an engine that is idle schedule."""
    if s.action[replica] == IDLE and s.wake[replica] == FOREVER:
        s.action[replica] = SCHEDULE
        s.wake[replica] = max(now, s.clock[replica])


def draw(s: ServingState, below: int) -> int:
    """A pseudo-random number below ``below`` (linear congruential generator: Knuth's MMIX, upper half)."""
    s.counters[DRAWN] = (s.counters[DRAWN] * 1103515245 + 12345) & 0x7FFFFFFF
    return ((s.counters[DRAWN] >> 8) * below) >> 23


def serves(p: Program, s: ServingState, replica: int, now: int, decodes: int) -> bool:
    """Whether a replica is up and serves this kind of request."""
    if s.up[replica] != SERVING:
        return False
    knob = replica * KNOBS
    role = p.knobs[knob + ROLE]
    fits = role == DECODE if decodes else role != DECODE
    return fits and p.knobs[knob + BORN] <= now < p.knobs[knob + GONE]


def least_loaded(p: Program, s: ServingState, now: int, decodes: int) -> int:
    """The replica with the fewest requests, the first among equals."""
    best = -1
    for replica in range(p.fleet_knobs[REPLICAS]):
        if serves(p, s, replica, now, decodes) and (best < 0 or s.load[replica] < s.load[best]):
            best = replica
    return best


def next_serving(p: Program, s: ServingState, start: int, now: int) -> int:
    """The first replica from a place on, round and round, that serves; -1: none does."""
    replicas = p.fleet_knobs[REPLICAS]
    for step in range(replicas):
        replica = (start + step) % replicas
        if serves(p, s, replica, now, 0):
            return replica
    return -1


def route(p: Program, s: ServingState, item: int, now: int) -> int:
    """The replica for a new request; -1 if none serves."""
    kind = p.fleet_knobs[ROUTER]
    replicas = p.fleet_knobs[REPLICAS]
    if replicas == 1:
        return next_serving(p, s, 0, now)
    if kind == LEAST_LOADED:
        return least_loaded(p, s, now, 0)
    if kind == POWER_OF_TWO:
        candidate = next_serving(p, s, draw(s, replicas), now)
        rival = next_serving(p, s, draw(s, replicas), now)
        return rival if candidate < 0 or (rival >= 0 and s.load[rival] < s.load[candidate]) else candidate
    if kind == SESSION:
        mixed = (p.stream[item] ^ (p.stream[item] >> 15)) & 0x7FFFFFFF
        return next_serving(p, s, ((mixed * 1640531527) >> 20) % replicas, now)
    if kind == PREFIX:
        return longest_prefix(p, s, item, now)
    replica = next_serving(p, s, s.counters[TURN] % replicas, now)
    s.counters[TURN] = replica + 1
    return replica


def longest_prefix(p: Program, s: ServingState, item: int, now: int) -> int:
    """The replica that caches most of the prompt, unless it is far more loaded than the least loaded one."""
    best = least_loaded(p, s, now, 0)
    if best < 0:
        return best
    idle = s.load[best]
    longest_hit = 0
    for replica in range(p.fleet_knobs[REPLICAS]):
        if not serves(p, s, replica, now, 0) or s.load[replica] > 2 * idle + 8:
            continue
        s.replica[item] = replica
        hit = hit_blocks(p, s, item, replica, (p.prompt[item] - 1) // p.knobs[replica * KNOBS + BLOCK])
        if hit > longest_hit:
            best, longest_hit = replica, hit
    return best


def transfer(p: Program, s: ServingState, item: int, now: int) -> None:
    """Transfer a prompt's keys and values; each end handles one transfer at a time, first come, first served."""
    source = s.replica[item]
    target = least_loaded(p, s, now, 1)
    if target < 0:
        s.status[item] = MOVING
        park(s, item)
        return
    s.status[item] = MOVING
    have = p.prompt[item] + s.kept_tokens[item]
    s.replica[item] = target
    s.load[target] += 1
    begin = max(now, s.port_out[source], s.port_in[target])
    ns = have * p.fleet_knobs[KV_BYTES] * 1_000_000_000 // max(p.fleet_knobs[PORT_BPS], 1)
    s.port_out[source] = begin + ns
    s.port_in[target] = begin + ns
    s.loaded[item] = have - 1
    s.tokens[item] = have
    s.computed[item] = 0
    s.in_flight[item] = 0
    s.placeholders[item] = 0
    push_arrival(s, item, begin + ns + p.fleet_knobs[PORT_NS])
