"""Engines that start, stop and fail while requests are served: start-up, failures, draining, autoscaling.

The unit of change is an engine: a replica, or the data-parallel ranks that step together, identified by their first
rank. An engine is SERVING, ABSENT (no GPUs), STARTING, DRAINING (accepts no requests) or FAILED (restarts on its GPUs).

The autoscaler follows Kubernetes with an average-value target: it wants the sum over all engines divided by the target
of one, ignores changes within a tenth, and scales down only after a cooldown, to the largest number wanted meanwhile.
"""

from __future__ import annotations

from presim.serving.fast.arrival_heap import push_arrival, release_followers
from presim.serving.fast.pool import clear
from presim.serving.fast.request_routing import unpark
from presim.serving.fast.serving_state import (
    ABSENT,
    AFTER_FAILURE,
    CHANGE,
    CONCURRENCY,
    COOLDOWN_NS,
    DETECT_NS,
    DRAIN_NS,
    DRAINING,
    EVENTS,
    FAILED,
    FOREVER,
    GROUP,
    HELD_HEAD,
    HELD_TAIL,
    IDLE,
    IN_FLIGHT,
    INTERVAL_NS,
    KNOBS,
    LEAST,
    LIFETIMES,
    LOSE,
    LOST,
    LOW_MOST,
    LOW_SINCE,
    MAX_SEQS,
    MEMBERS,
    MOST,
    NOW,
    OPEN,
    PARKED_HEAD,
    REDONE,
    REPLICAS,
    REROUTED,
    RESTART,
    SCALE_ON,
    SCALE_QUEUE,
    SERVING,
    START_NS,
    STARTING,
    TARGET,
    TICK,
    Program,
    ServingState,
)

_MOVES_AT_MOST = 100  # moves of a request before it counts as lost, e.g. if replicas always fail before it finishes


def apply_engine_changes(p: Program, s: ServingState) -> None:
    """Apply due changes of engines, then run the autoscaler if due."""
    now = s.counters[CHANGE]
    s.counters[NOW] = now
    engine = 0
    while engine < p.fleet_knobs[REPLICAS]:
        new_state = next_engine_state(s, engine, now)
        if new_state >= 0:
            detected_ns = now + p.fleet_knobs[DETECT_NS] if s.fails[engine] <= now else now
            set_engine_state(p, s, engine, new_state, now)
            if new_state == SERVING:
                start_lifetime(p, s, engine, now)
                unpark(s, now)
            else:
                evacuate(p, s, engine, now, detected_ns)
        engine += p.knobs[engine * KNOBS + MEMBERS]
    if s.counters[TICK] <= now:
        s.counters[TICK] = now + p.fleet_knobs[INTERVAL_NS]
        scale_engines(p, s, now)
    set_next_change(p, s)


def next_engine_state(s: ServingState, engine: int, now: int) -> int:
    """The next state of an engine; -1 if unchanged. A failed engine restarts, unless it was draining."""
    if s.fails[engine] <= now:
        return ABSENT if s.up[engine] == DRAINING else FAILED
    if s.change[engine] <= now:
        return ABSENT if s.up[engine] == DRAINING else SERVING
    return -1


def set_next_change(p: Program, s: ServingState) -> None:
    """Set the time of the next change."""
    soonest = s.counters[TICK]
    engine = 0
    while engine < p.fleet_knobs[REPLICAS]:
        soonest = min(soonest, s.change[engine], s.fails[engine])
        engine += p.knobs[engine * KNOBS + MEMBERS]
    s.counters[CHANGE] = soonest


def set_engine_state(p: Program, s: ServingState, engine: int, new_state: int, now: int) -> None:
    """Set an engine's state and the time of its next change."""
    for rank in range(engine, engine + p.knobs[engine * KNOBS + MEMBERS]):
        s.up[rank] = new_state
    s.change[engine] = FOREVER
    if new_state in (STARTING, FAILED):
        s.change[engine] = now + p.fleet_knobs[START_NS]
    elif new_state == DRAINING:
        s.change[engine] = min(now + p.fleet_knobs[DRAIN_NS], FOREVER)
    if new_state != SERVING and new_state != DRAINING:
        s.fails[engine] = FOREVER
    row = s.counters[EVENTS] * 3
    s.events[row] = now
    s.events[row + 1] = engine
    s.events[row + 2] = new_state
    s.counters[EVENTS] += 1


def start_lifetime(p: Program, s: ServingState, engine: int, now: int) -> None:
    """Start an engine's next lifetime."""
    count = p.fleet_knobs[LIFETIMES]
    if count > 0:
        s.fails[engine] = now + p.lifetimes[engine * count + s.lives[engine] % count]
        s.lives[engine] += 1


def evacuate(p: Program, s: ServingState, engine: int, now: int, return_ns: int) -> None:
    """Send all requests of an engine back to the router."""
    for rank in range(engine, engine + p.knobs[engine * KNOBS + MEMBERS]):
        first = p.row_base[rank]
        while s.n_running[rank] > 0 or s.head[rank] >= 0:
            item = s.head[rank]
            if s.n_running[rank] > 0:
                s.n_running[rank] -= 1
                item = s.running[first + s.n_running[rank]]
            else:
                s.head[rank] = s.next[item]
            move_request(p, s, item, now, return_ns)
        s.tail[rank] = -1
        s.waiting[rank] = 0
        s.passed_over[rank] = 0
        s.n_slots[rank] = 0
        s.sleeps[rank] = 0
        s.action[rank] = IDLE
        s.wake[rank] = FOREVER
        clear(p, s, rank)
    s.round_end[engine] = min(s.round_end[engine], now)


def move_request(p: Program, s: ServingState, item: int, now: int, return_ns: int) -> None:
    """Remove a request from an engine: it returns to the router or is lost."""
    s.load[s.replica[item]] -= 1
    s.moves[item] += 1
    s.was_passed[item] = 0
    s.kept_tokens[item] = max(s.tokens[item] - p.prompt[item], s.kept_tokens[item])
    failed = s.up[s.replica[item]] == FAILED
    for_good = failed and p.fleet_knobs[AFTER_FAILURE] == LOSE
    if for_good or s.moves[item] > _MOVES_AT_MOST:
        s.status[item] = LOST
        end_client_request(p, s, item, now)
        return
    s.counters[REDONE] += min(s.computed[item], s.tokens[item])
    if failed and p.fleet_knobs[AFTER_FAILURE] == RESTART:
        s.kept_tokens[item] = 0
        s.first[item] = -1
        s.last[item] = -1
    s.status[item] = REROUTED
    s.tokens[item] = 0
    s.computed[item] = 0
    s.placeholders[item] = 0
    s.in_flight[item] = 0
    s.stale[item] = 0
    s.decodes[item] = 0
    s.eligible[item] = 0
    s.sampled_at[item] = 0
    s.loaded[item] = 0
    s.blocks[item] = 0
    s.cached[item] = 0
    s.row[item] = -1
    s.apart_pages[item] = 0
    s.apart_head[item] = -1
    s.reach[item] = 0
    push_arrival(s, item, return_ns)


def end_client_request(p: Program, s: ServingState, item: int, now: int) -> None:
    """A client finished a request: it sends follow-ups and requests it held back."""
    s.counters[OPEN] -= 1
    s.counters[IN_FLIGHT] -= 1
    release_followers(p, s, item, now)
    waiting_item = s.counters[HELD_HEAD]
    if waiting_item >= 0 and s.counters[IN_FLIGHT] < p.fleet_knobs[CONCURRENCY]:
        s.counters[HELD_HEAD] = s.next[waiting_item]
        if s.counters[HELD_HEAD] < 0:
            s.counters[HELD_TAIL] = -1
        push_arrival(s, waiting_item, now)


def end_replica_request(p: Program, s: ServingState, replica: int, now: int) -> None:
    """A replica finished a request; a draining engine without requests becomes absent."""
    s.load[replica] -= 1
    if s.up[replica] != DRAINING:
        return
    engine = p.knobs[replica * KNOBS + GROUP]
    if count_requests(p, s, engine) == 0:
        s.change[engine] = now
        s.counters[CHANGE] = now


def count_requests(p: Program, s: ServingState, engine: int) -> int:
    """Number of requests of an engine."""
    count = 0
    for rank in range(engine, engine + p.knobs[engine * KNOBS + MEMBERS]):
        count += s.load[rank]
    return count


def target_engines(p: Program, s: ServingState, present: int) -> int:
    """Number of engines that the autoscaler wants."""
    amount = 0
    item = s.counters[PARKED_HEAD]
    while item >= 0:
        amount += 1
        item = s.next[item]
    for rank in range(p.fleet_knobs[REPLICAS]):
        if s.up[rank] != DRAINING:
            amount += s.waiting[rank] if p.fleet_knobs[SCALE_ON] == SCALE_QUEUE else s.load[rank]
    target = p.fleet_knobs[TARGET]
    if p.fleet_knobs[SCALE_ON] != SCALE_QUEUE:
        target = target * p.knobs[MAX_SEQS] * p.knobs[MEMBERS]
    off = amount * 1_000_000 - present * target
    if -present * target <= 10 * off <= present * target:
        return present
    return min(max((amount * 1_000_000 + target - 1) // target, p.fleet_knobs[LEAST]), p.fleet_knobs[MOST])


def scale_engines(p: Program, s: ServingState, now: int) -> None:
    """Start or remove engines."""
    present = 0
    engine = 0
    while engine < p.fleet_knobs[REPLICAS]:
        present += 1 if s.up[engine] != ABSENT and s.up[engine] != DRAINING else 0
        engine += p.knobs[engine * KNOBS + MEMBERS]
    ask = target_engines(p, s, present)
    if ask >= present:
        s.counters[LOW_SINCE] = -1
        engine = 0
        while engine < p.fleet_knobs[REPLICAS] and present < ask:
            if s.up[engine] == ABSENT:
                set_engine_state(p, s, engine, STARTING, now)
                present += 1
            engine += p.knobs[engine * KNOBS + MEMBERS]
        return
    if s.counters[LOW_SINCE] < 0:
        s.counters[LOW_SINCE] = now
        s.counters[LOW_MOST] = ask
    s.counters[LOW_MOST] = max(s.counters[LOW_MOST], ask)
    if now - s.counters[LOW_SINCE] < p.fleet_knobs[COOLDOWN_NS]:
        return
    for _ in range(present - s.counters[LOW_MOST]):
        remove_engine(p, s, now)
    s.counters[LOW_SINCE] = -1


def remove_engine(p: Program, s: ServingState, now: int) -> None:
    """Remove an engine: one that does not serve yet, else the one with fewest requests, the last among equals."""
    best = -1
    engine = 0
    while engine < p.fleet_knobs[REPLICAS]:
        up = s.up[engine]
        if up != ABSENT and up != DRAINING and (best < 0 or removal_rank(p, s, engine) <= removal_rank(p, s, best)):
            best = engine
        engine += p.knobs[engine * KNOBS + MEMBERS]
    idle = s.up[best] != SERVING or count_requests(p, s, best) == 0
    set_engine_state(p, s, best, ABSENT if idle else DRAINING, now)


def removal_rank(p: Program, s: ServingState, engine: int) -> int:
    """Sort key for removal: the lowest goes first."""
    return count_requests(p, s, engine) if s.up[engine] == SERVING else -1
