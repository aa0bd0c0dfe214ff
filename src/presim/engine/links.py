"""Transfers that run at the same time share the links of a described fabric, max-min fair.

A *carrier* is the lead of a running transfer that puts flows on links. All flows of a transfer carry as many bytes and
advance together, so a transfer has one rate: that of one of its flows. Its price gives its rate without contention;
other work on its GPUs may lower that to its *cap*. If the caps of all carriers demand more than a link's bandwidth,
rates are raised together until a link is full, which fixes the rates of its carriers, or until a carrier reaches its
cap.

A carrier demands at most a link's bandwidth, whatever its price says. Links and classes that share no carrier are in
different *islands*: each is solved separately, and only when the demand on a crowded link changes. Sums are integers,
so the result does not depend on the order of carriers.
"""

from __future__ import annotations

from presim.engine.pace import change_slowdown
from presim.engine.state import CARRIERS, DIRTY, FOREVER, FULL, MOST_RATE, RATE, SCALE, LoopState, Program


def flows_of(p: Program, s: LoopState, lead: int) -> int:
    """The class of flows of a transfer: among its members that of the largest flows; 0: it is on no link."""
    flow_class = p.flows[lead]
    if p.match[lead] >= 0:
        member = s.match_first[p.match[lead]]
        while member >= 0:
            if p.flows_bytes[p.flows[member]] > p.flows_bytes[flow_class]:
                flow_class = p.flows[member]
            member = s.match_next[member]
    return flow_class


def add_carrier(p: Program, s: LoopState, lead: int) -> bool:
    """Add a starting transfer; returns whether it is on links. `set_cap` sets its cap at the end of the moment."""
    if p.link_entries[0] == 0:
        return False
    flow_class = flows_of(p, s, lead)
    if flow_class == 0:
        return False
    position = s.counters[CARRIERS]
    s.counters[CARRIERS] += 1
    s.carrier[position] = lead
    s.carrier_position[lead] = position
    s.carries[lead] = flow_class
    s.cap[lead] = 0
    s.own_code[lead] = -1
    return True


def remove_carrier(p: Program, s: LoopState, lead: int) -> None:
    """Remove a finished transfer, whose demand on links becomes 0."""
    if s.carries[lead] == 0:
        return
    change_cap(p, s, lead, 0)
    s.carries[lead] = 0
    s.counters[CARRIERS] -= 1
    last = s.carrier[s.counters[CARRIERS]]
    s.carrier[s.carrier_position[lead]] = last
    s.carrier_position[last] = s.carrier_position[lead]


def set_cap(p: Program, s: LoopState, lead: int, code: int, now: int) -> None:
    """Set a carrier's cap from its `slowdown_code` on its GPUs. If no link is crowded, that is its slowdown."""
    code = beyond_crowding(p, s, lead, code)
    if code == s.own_code[lead]:
        return
    s.own_code[lead] = code
    if not change_cap(p, s, lead, uncontended_rate(p, s, lead) * SCALE // (SCALE + code // 2)):
        change_slowdown(s, lead, code, now)


def beyond_crowding(p: Program, s: LoopState, lead: int, code: int) -> int:
    """The slowdown code beyond the price of a transfer that waits for links that its own flows crowd.

    Its rate is the lower of what these links and what its GPUs leave it: the two waits are not added.
    """
    slowdown = (SCALE + code // 2) * p.flows_uncrowded[s.carries[lead]] // SCALE
    return 2 * (slowdown - SCALE) + code % 2 if slowdown > SCALE else 0


def uncontended_rate(p: Program, s: LoopState, lead: int) -> int:
    """The rate of a carrier without contention, in 1/RATE bytes a ns."""
    return max(1, min(p.flows_bytes[s.carries[lead]] * RATE // max(s.uncontended_ns[lead], 1), MOST_RATE))


def change_cap(p: Program, s: LoopState, lead: int, cap: int) -> bool:
    """Change a carrier's cap; returns whether a link is crowded. Its island is then solved at the end of the moment."""
    flow_class = s.carries[lead]
    max_share = FULL // uncontended_rate(p, s, lead)
    crowded = False
    for entry in range(p.flows_first[flow_class], p.flows_end[flow_class]):
        link = p.flows_link[entry]
        before = s.demand[link]
        s.demand[link] = before + min(p.flows_share[entry], max_share) * (cap - s.cap[lead])
        crowded = crowded or max(before, s.demand[link]) > FULL
    s.cap[lead] = cap
    island = p.flows_island[flow_class]
    if crowded and s.is_dirty[island] == 0:
        s.is_dirty[island] = 1
        s.dirty[s.counters[DIRTY]] = island
        s.counters[DIRTY] += 1
    return crowded


def update_links(p: Program, s: LoopState, now: int) -> None:
    """Solve the islands where the demand on a crowded link changed at this moment."""
    while s.counters[DIRTY] > 0:
        s.counters[DIRTY] -= 1
        island = s.dirty[s.counters[DIRTY]]
        s.is_dirty[island] = 0
        solve_island(p, s, island)
        for position in range(s.counters[CARRIERS]):
            lead = s.carrier[position]
            if p.flows_island[s.carries[lead]] == island:
                change_slowdown(s, lead, code_on_links(p, s, lead), max(now, s.since[lead]))


def code_on_links(p: Program, s: LoopState, lead: int) -> int:
    """The slowdown code of a carrier: that of its GPUs, or that of its rate if links leave it less."""
    if s.rate[lead] == s.cap[lead]:
        return s.own_code[lead]
    rate = max(s.rate[lead], 1)
    slowdown = (uncontended_rate(p, s, lead) * SCALE + rate - 1) // rate
    return max(s.own_code[lead], 2 * (slowdown - SCALE) + 1)


def solve_island(p: Program, s: LoopState, island: int) -> None:
    """Max-min fair rates of an island's carriers, from the lowest to the highest."""
    waiting = 0
    for link in range(p.island_first[island], p.island_first[island + 1]):
        s.link_left[link] = FULL
        s.link_open[link] = 0
    for position in range(s.counters[CARRIERS]):
        lead = s.carrier[position]
        if p.flows_island[s.carries[lead]] == island:
            s.rate[lead] = -1
            waiting += 1
            update_link_use(p, s, lead, 1, 0)
    while waiting > 0:
        lowest_rate = lowest_full_rate(p, s, island)
        fixed = 0
        for position in range(s.counters[CARRIERS]):
            lead = s.carrier[position]
            if p.flows_island[s.carries[lead]] == island and s.rate[lead] < 0 and s.cap[lead] <= lowest_rate:
                fix_rate(p, s, lead, s.cap[lead])
                fixed += 1
        if fixed == 0:
            fixed = fix_on_full(p, s, island, lowest_rate)
        waiting -= fixed


def lowest_full_rate(p: Program, s: LoopState, island: int) -> int:
    """The lowest rate at which a link is full; marks the links that are full at it."""
    lowest_rate = FOREVER
    for link in range(p.island_first[island], p.island_first[island + 1]):
        if s.demand[link] > FULL and s.link_open[link] > 0:
            lowest_rate = min(lowest_rate, s.link_left[link] // s.link_open[link])
    for link in range(p.island_first[island], p.island_first[island + 1]):
        s.link_full[link] = 0
        if s.demand[link] > FULL and s.link_open[link] > 0 and s.link_left[link] // s.link_open[link] == lowest_rate:
            s.link_full[link] = 1
    return lowest_rate


def fix_on_full(p: Program, s: LoopState, island: int, lowest_rate: int) -> int:
    """Fix the rate of all open carriers on full links; returns their number."""
    fixed = 0
    for position in range(s.counters[CARRIERS]):
        lead = s.carrier[position]
        flow_class = s.carries[lead]
        if p.flows_island[flow_class] != island or s.rate[lead] >= 0:
            continue
        full = 0
        for entry in range(p.flows_first[flow_class], p.flows_end[flow_class]):
            full = max(full, s.link_full[p.flows_link[entry]])
        if full == 1:
            fix_rate(p, s, lead, lowest_rate)
            fixed += 1
    return fixed


def fix_rate(p: Program, s: LoopState, lead: int, rate: int) -> None:
    """Fix a carrier's rate and take its use off its links."""
    s.rate[lead] = rate
    update_link_use(p, s, lead, -1, rate)


def update_link_use(p: Program, s: LoopState, lead: int, sign: int, rate: int) -> None:
    """Add a carrier's shares to its links (``sign`` 1); -1: remove them, and what its ``rate`` uses."""
    flow_class = s.carries[lead]
    max_share = FULL // uncontended_rate(p, s, lead)
    for entry in range(p.flows_first[flow_class], p.flows_end[flow_class]):
        link = p.flows_link[entry]
        if s.demand[link] > FULL:
            share = min(p.flows_share[entry], max_share)
            s.link_open[link] += sign * share
            s.link_left[link] -= share * rate
