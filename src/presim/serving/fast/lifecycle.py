"""Engines that start, stop and fail while requests are served: start-up, failures, draining, autoscaling.

The unit of change is an engine: a replica, or the data-parallel ranks that step together, identified by their first
rank. An engine is SERVING, ABSENT (no GPUs), STARTING, DRAINING (accepts no requests) or FAILED (restarts on its GPUs).

The autoscaler follows Kubernetes with an average-value target: it wants the sum over all engines divided by the target
of one, ignores changes within a tenth, and scales down only after a cooldown, to the largest number wanted meanwhile.
"""

from __future__ import annotations

from presim.serving.fast.heap import follow, send
from presim.serving.fast.pool import clear
from presim.serving.fast.routing import unpark
from presim.serving.fast.state import (
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
    State,
)

_MOVES_AT_MOST = 100  # moves of a request before it counts as lost, e.g. if replicas always fail before it finishes


def turn(p: Program, s: State) -> None:
    """Apply due changes of engines, then run the autoscaler if due."""
    now = s.counters[CHANGE]
    s.counters[NOW] = now
    engine = 0
    while engine < p.whole[REPLICAS]:
        what = due(s, engine, now)
        if what >= 0:
            when = now + p.whole[DETECT_NS] if s.fails[engine] <= now else now
            set_up(p, s, engine, what, now)
            if what == SERVING:
                live(p, s, engine, now)
                unpark(s, now)
            else:
                evacuate(p, s, engine, now, when)
        engine += p.knobs[engine * KNOBS + MEMBERS]
    if s.counters[TICK] <= now:
        s.counters[TICK] = now + p.whole[INTERVAL_NS]
        scale(p, s, now)
    next_change(p, s)


def due(s: State, engine: int, now: int) -> int:
    """The next state of an engine; -1 if unchanged. A failed engine restarts, unless it was draining."""
    if s.fails[engine] <= now:
        return ABSENT if s.up[engine] == DRAINING else FAILED
    if s.change[engine] <= now:
        return ABSENT if s.up[engine] == DRAINING else SERVING
    return -1


def next_change(p: Program, s: State) -> None:
    """Set the time of the next change."""
    soonest = s.counters[TICK]
    engine = 0
    while engine < p.whole[REPLICAS]:
        soonest = min(soonest, s.change[engine], s.fails[engine])
        engine += p.knobs[engine * KNOBS + MEMBERS]
    s.counters[CHANGE] = soonest


def set_up(p: Program, s: State, engine: int, what: int, now: int) -> None:
    """Set an engine's state and the time of its next change."""
    for rank in range(engine, engine + p.knobs[engine * KNOBS + MEMBERS]):
        s.up[rank] = what
    s.change[engine] = FOREVER
    if what in (STARTING, FAILED):
        s.change[engine] = now + p.whole[START_NS]
    elif what == DRAINING:
        s.change[engine] = min(now + p.whole[DRAIN_NS], FOREVER)
    if what != SERVING and what != DRAINING:
        s.fails[engine] = FOREVER
    at = s.counters[EVENTS] * 3
    s.events[at] = now
    s.events[at + 1] = engine
    s.events[at + 2] = what
    s.counters[EVENTS] += 1


def live(p: Program, s: State, engine: int, now: int) -> None:
    """Start an engine's next lifetime."""
    count = p.whole[LIFETIMES]
    if count > 0:
        s.fails[engine] = now + p.lifetimes[engine * count + s.lives[engine] % count]
        s.lives[engine] += 1


def evacuate(p: Program, s: State, engine: int, now: int, when: int) -> None:
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
            move(p, s, item, now, when)
        s.tail[rank] = -1
        s.waiting[rank] = 0
        s.n_slots[rank] = 0
        s.sleeps[rank] = 0
        s.action[rank] = IDLE
        s.wake[rank] = FOREVER
        clear(p, s, rank)
    s.round_end[engine] = min(s.round_end[engine], now)


def move(p: Program, s: State, item: int, now: int, when: int) -> None:
    """Remove a request from an engine: it returns to the router or is lost."""
    s.load[s.replica[item]] -= 1
    s.counters[REDONE] += min(s.computed[item], s.tokens[item])
    s.moves[item] += 1
    s.kept[item] = max(s.tokens[item] - p.prompt[item], s.kept[item])
    failed = s.up[s.replica[item]] == FAILED
    for_good = failed and p.whole[AFTER_FAILURE] == LOSE
    if for_good or s.moves[item] > _MOVES_AT_MOST:
        s.status[item] = LOST
        closed(p, s, item, now)
        return
    if failed and p.whole[AFTER_FAILURE] == RESTART:
        s.kept[item] = 0
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
    s.apart[item] = 0
    s.apart_head[item] = -1
    s.reach[item] = 0
    send(s, item, when)


def closed(p: Program, s: State, item: int, now: int) -> None:
    """A client finished a request: it sends follow-ups and requests it held back."""
    s.counters[OPEN] -= 1
    s.counters[IN_FLIGHT] -= 1
    follow(p, s, item, now)
    held = s.counters[HELD_HEAD]
    if held >= 0 and s.counters[IN_FLIGHT] < p.whole[CONCURRENCY]:
        s.counters[HELD_HEAD] = s.next[held]
        if s.counters[HELD_HEAD] < 0:
            s.counters[HELD_TAIL] = -1
        send(s, held, now)


def left(p: Program, s: State, replica: int, now: int) -> None:
    """A replica finished a request; a draining engine without requests becomes absent."""
    s.load[replica] -= 1
    if s.up[replica] != DRAINING:
        return
    engine = p.knobs[replica * KNOBS + GROUP]
    if has(p, s, engine) == 0:
        s.change[engine] = now
        s.counters[CHANGE] = now


def has(p: Program, s: State, engine: int) -> int:
    """Number of requests of an engine."""
    count = 0
    for rank in range(engine, engine + p.knobs[engine * KNOBS + MEMBERS]):
        count += s.load[rank]
    return count


def wanted(p: Program, s: State, present: int) -> int:
    """Number of engines that the autoscaler wants."""
    amount = 0
    item = s.counters[PARKED_HEAD]
    while item >= 0:
        amount += 1
        item = s.next[item]
    for rank in range(p.whole[REPLICAS]):
        if s.up[rank] != DRAINING:
            amount += s.waiting[rank] if p.whole[SCALE_ON] == SCALE_QUEUE else s.load[rank]
    each = p.whole[TARGET]
    if p.whole[SCALE_ON] != SCALE_QUEUE:
        each = each * p.knobs[MAX_SEQS] * p.knobs[MEMBERS]
    off = amount * 1_000_000 - present * each
    if -present * each <= 10 * off <= present * each:
        return present
    return min(max((amount * 1_000_000 + each - 1) // each, p.whole[LEAST]), p.whole[MOST])


def scale(p: Program, s: State, now: int) -> None:
    """Start or remove engines."""
    present = 0
    engine = 0
    while engine < p.whole[REPLICAS]:
        present += 1 if s.up[engine] != ABSENT and s.up[engine] != DRAINING else 0
        engine += p.knobs[engine * KNOBS + MEMBERS]
    ask = wanted(p, s, present)
    if ask >= present:
        s.counters[LOW_SINCE] = -1
        engine = 0
        while engine < p.whole[REPLICAS] and present < ask:
            if s.up[engine] == ABSENT:
                set_up(p, s, engine, STARTING, now)
                present += 1
            engine += p.knobs[engine * KNOBS + MEMBERS]
        return
    if s.counters[LOW_SINCE] < 0:
        s.counters[LOW_SINCE] = now
        s.counters[LOW_MOST] = ask
    s.counters[LOW_MOST] = max(s.counters[LOW_MOST], ask)
    if now - s.counters[LOW_SINCE] < p.whole[COOLDOWN_NS]:
        return
    for _ in range(present - s.counters[LOW_MOST]):
        remove(p, s, now)
    s.counters[LOW_SINCE] = -1


def remove(p: Program, s: State, now: int) -> None:
    """Remove an engine: one that does not serve yet, else the one with fewest requests, the last among equals."""
    best = -1
    engine = 0
    while engine < p.whole[REPLICAS]:
        up = s.up[engine]
        if up != ABSENT and up != DRAINING and (best < 0 or rank_of(p, s, engine) <= rank_of(p, s, best)):
            best = engine
        engine += p.knobs[engine * KNOBS + MEMBERS]
    idle = s.up[best] != SERVING or has(p, s, best) == 0
    set_up(p, s, best, ABSENT if idle else DRAINING, now)


def rank_of(p: Program, s: State, engine: int) -> int:
    """Sort key for removal: the lowest goes first."""
    return has(p, s, engine) if s.up[engine] == SERVING else -1
