"""Contention: overlapping work on a rank, or on a network port shared by ranks, slows each other.

Each running op has an *interference*: the time that other running ops of its rank add to each ns of its work, in
1/SCALE. A shared port has a *load*: the sum of the shares that running ops of simulated and represented ranks use. If
the load exceeds SCALE, all users of the port slow down in proportion. The larger of interference and excess load
determines an op's slowdown. A collective has the slowdown of its slowest member.

Slowdowns change when ops start or end. Once all events of a moment are known, the work done so far is accounted at the
old slowdown and the ends of the affected ops are moved (`presim.engine.pace`). A transfer on links of a described
fabric also waits for these (`presim.engine.links`).
"""

from __future__ import annotations

from presim.engine.links import set_cap, update_links
from presim.engine.pace import change_slowdown
from presim.engine.state import CHANGED, SCALE, UPDATES, WAYS, LoopState, Program


def add_active(p: Program, s: LoopState, op: int) -> None:
    """Add an op to the running ops of its rank."""
    if p.classes[0] == 0:
        return
    rank = p.slot_rank[p.slot[op]]
    drag = 0
    other = s.active_first[rank]
    while other >= 0:
        drag += interference_from(p, op, other)
        add_interference(s, rank, other, interference_from(p, other, op))
        other = s.active_next[other]
    s.active_next[op] = s.active_first[rank]
    s.active_first[rank] = op
    add_interference(s, rank, op, drag)
    if p.port[rank] >= 0:
        add_port_load(p, s, op, 1)


def remove_active(p: Program, s: LoopState, op: int) -> None:
    """Remove an op from the running ops of its rank."""
    if p.classes[0] == 0:
        return
    rank = p.slot_rank[p.slot[op]]
    before = -1
    other = s.active_first[rank]
    while other >= 0:
        if other == op:
            if before < 0:
                s.active_first[rank] = s.active_next[op]
            else:
                s.active_next[before] = s.active_next[op]
        else:
            add_interference(s, rank, other, -interference_from(p, other, op))
            before = other
        other = s.active_next[other]
    if p.port[rank] >= 0:
        add_port_load(p, s, op, -1)


def interference_from(p: Program, op: int, other: int) -> int:
    """Time that `other` adds to each ns of `op`. It is 0 within one launch: prices include the sharing."""
    if p.slot[op] == p.slot[other]:
        return 0
    return p.slows[p.contends[op] * p.classes[0] + p.contends[other]]


def add_interference(s: LoopState, rank: int, op: int, delta: int) -> None:
    """Change the interference of a running op."""
    if delta != 0:
        s.interference[op] += delta
        mark_changed(s, rank)


def mark_changed(s: LoopState, rank: int) -> None:
    """Recompute the slowdowns on a rank at the end of this moment."""
    if s.is_changed[rank] == 0:
        s.is_changed[rank] = 1
        s.changed[s.counters[CHANGED]] = rank
        s.counters[CHANGED] += 1


def add_port_load(p: Program, s: LoopState, op: int, sign: int) -> None:
    """Add an op to the loads of the ports for which its rank has a weight (``sign`` 1), or remove it (-1)."""
    rank = p.slot_rank[p.slot[op]]
    for way in range(WAYS):
        part = p.takes[p.contends[op] * WAYS + way]
        if part == 0:
            continue
        other_part = largest_part_of_launch(p, s, op, rank, way)
        for weight in range(p.weight_first[rank], p.weight_first[rank + 1]):
            port = p.weight_port[weight]
            load = s.load[port * WAYS + way]
            delta = max(part, other_part) * p.weights[weight] // SCALE - other_part * p.weights[weight] // SCALE
            s.load[port * WAYS + way] = load + sign * delta
            if max(load, load + sign * delta) > SCALE:
                other_rank = p.port_first[port]
                while other_rank >= 0:
                    mark_changed(s, other_rank)
                    other_rank = p.port_next[other_rank]


def update_slowdowns(p: Program, s: LoopState, now: int) -> None:
    """Recompute the slowdowns on changed ranks, once no host can add work at this moment.

    The result does not depend on the order of the events of a moment: work with an unchanged slowdown is not rounded.
    """
    s.counters[UPDATES] += 1
    while s.counters[CHANGED] > 0:
        s.counters[CHANGED] -= 1
        rank = s.changed[s.counters[CHANGED]]
        s.is_changed[rank] = 0
        op = s.active_first[rank]
        while op >= 0:
            lead = s.lead[op]
            if s.last_update[lead] != s.counters[UPDATES]:
                s.last_update[lead] = s.counters[UPDATES]
                set_slowdown(p, s, lead, max(now, s.since[lead]))
            op = s.active_next[op]
    update_links(p, s, now)


def largest_part_of_launch(p: Program, s: LoopState, op: int, rank: int, way: int) -> int:
    """The largest share of a port that other ops of the same launch use. Their prices include the sharing."""
    largest_part = 0
    other = s.active_first[rank]
    while other >= 0:
        if other != op and p.slot[other] == p.slot[op]:
            largest_part = max(largest_part, p.takes[p.contends[other] * WAYS + way])
        other = s.active_next[other]
    return largest_part


def slowdown_code(p: Program, s: LoopState, op: int) -> int:
    """Twice the time added to each ns of an op, in 1/SCALE; plus 1 if a shared port determines it."""
    port = p.port[p.slot_rank[p.slot[op]]]
    if port < 0:
        return 2 * s.interference[op]
    load = SCALE
    for way in range(WAYS):
        if p.takes[p.contends[op] * WAYS + way] > 0:
            load = max(load, s.load[port * WAYS + way])
    return max(2 * s.interference[op], 2 * (load - SCALE) + (1 if load > SCALE else 0))


def set_slowdown(p: Program, s: LoopState, lead: int, now: int) -> None:
    """Set the slowdown of a rendezvous to that of its slowest member, or what links allow, and move its end."""
    code = slowdown_code(p, s, lead)
    if p.match[lead] >= 0:
        member = s.match_first[p.match[lead]]
        while member >= 0:
            code = max(code, slowdown_code(p, s, member))
            member = s.match_next[member]
    if s.carries[lead] > 0:
        set_cap(p, s, lead, code, now)
    else:
        change_slowdown(s, lead, code, now)
