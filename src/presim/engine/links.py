"""Transfers that run at the same time share the links of a described fabric, max-min fair.

A *carrier* is the lead of a running transfer that puts flows on links. All flows of a transfer carry as many bytes and
go on in step, so a transfer has one rate: that of one of its flows. Alone it has the rate that its price says; what
runs beside it on its GPUs may hold it back (its *cap*). Where the caps of all carriers ask a link for more than there
is, rates are raised together until a link is full, which fixes the carriers on it, or until a carrier is at its cap.

A carrier's flows want of a link no more than the link has, whatever the price says. Links and classes that are joined
by nothing are different *islands*: each is solved by itself, and only when a crowded link of it changes. Sums are of
whole numbers, so the answer does not depend on the order of carriers.
"""

from __future__ import annotations

from presim.engine.pace import change_slowdown
from presim.engine.state import CARRIERS, DIRTY, FOREVER, FULL, MOST_RATE, RATE, SCALE, Program, State


def flows_of(p: Program, s: State, lead: int) -> int:
    """The class of flows of a transfer: among its members that of the largest flows; 0: it is on no link."""
    found = p.flows[lead]
    if p.match[lead] >= 0:
        member = s.match_first[p.match[lead]]
        while member >= 0:
            if p.flows_bytes[p.flows[member]] > p.flows_bytes[found]:
                found = p.flows[member]
            member = s.match_next[member]
    return found


def carry(p: Program, s: State, lead: int) -> bool:
    """A transfer begins; whether it is on links. Its cap is set once it is known what runs beside it."""
    if len(p.flows_link) == 0:
        return False
    found = flows_of(p, s, lead)
    if found == 0:
        return False
    at = s.counters[CARRIERS]
    s.counters[CARRIERS] += 1
    s.carrier[at] = lead
    s.carrier_position[lead] = at
    s.carries[lead] = found
    s.cap[lead] = 0
    s.own_code[lead] = -1
    return True


def release(p: Program, s: State, lead: int) -> None:
    """A transfer ends; the others have the links to themselves."""
    if s.carries[lead] == 0:
        return
    ask(p, s, lead, 0)
    s.carries[lead] = 0
    s.counters[CARRIERS] -= 1
    last = s.carrier[s.counters[CARRIERS]]
    s.carrier[s.carrier_position[lead]] = last
    s.carrier_position[last] = s.carrier_position[lead]


def hold_back(p: Program, s: State, lead: int, code: int, now: int) -> None:
    """Set what slows a carrier on its GPUs (`slowdown_code`). If no link is crowded, that is its slowdown."""
    if code == s.own_code[lead]:
        return
    s.own_code[lead] = code
    if not ask(p, s, lead, fastest(p, s, lead) * SCALE // (SCALE + code // 2)):
        change_slowdown(s, lead, code, now)


def fastest(p: Program, s: State, lead: int) -> int:
    """The rate of a carrier with nothing beside it, in 1/RATE bytes a ns."""
    return max(1, min(p.flows_bytes[s.carries[lead]] * RATE // max(s.alone[lead], 1), MOST_RATE))


def ask(p: Program, s: State, lead: int, cap: int) -> bool:
    """Change a carrier's cap; whether that concerns a crowded link. Its island is then solved at the moment's end."""
    found = s.carries[lead]
    most = FULL // fastest(p, s, lead)
    crowded = False
    for entry in range(p.flows_first[found], p.flows_end[found]):
        link = p.flows_link[entry]
        before = s.wanted[link]
        s.wanted[link] = before + min(p.flows_share[entry], most) * (cap - s.cap[lead])
        crowded = crowded or max(before, s.wanted[link]) > FULL
    s.cap[lead] = cap
    island = p.flows_island[found]
    if crowded and s.is_dirty[island] == 0:
        s.is_dirty[island] = 1
        s.dirty[s.counters[DIRTY]] = island
        s.counters[DIRTY] += 1
    return crowded


def update_links(p: Program, s: State, now: int) -> None:
    """Solve the islands where something changed at this moment."""
    while s.counters[DIRTY] > 0:
        s.counters[DIRTY] -= 1
        island = s.dirty[s.counters[DIRTY]]
        s.is_dirty[island] = 0
        divide(p, s, island)
        for at in range(s.counters[CARRIERS]):
            lead = s.carrier[at]
            if p.flows_island[s.carries[lead]] == island:
                change_slowdown(s, lead, code_on_links(p, s, lead), max(now, s.since[lead]))


def code_on_links(p: Program, s: State, lead: int) -> int:
    """The slowdown code of a carrier: that of its GPUs, or that of its rate if links leave it less."""
    if s.rate[lead] == s.cap[lead]:
        return s.own_code[lead]
    rate = max(s.rate[lead], 1)
    slowdown = (fastest(p, s, lead) * SCALE + rate - 1) // rate
    return max(s.own_code[lead], 2 * (slowdown - SCALE) + 1)


def divide(p: Program, s: State, island: int) -> None:
    """Max-min fair rates of an island's carriers, from the lowest to the highest."""
    waiting = 0
    for link in range(p.island_first[island], p.island_first[island + 1]):
        s.link_left[link] = FULL
        s.link_open[link] = 0
    for at in range(s.counters[CARRIERS]):
        lead = s.carrier[at]
        if p.flows_island[s.carries[lead]] == island:
            s.rate[lead] = -1
            waiting += 1
            use(p, s, lead, 1, 0)
    while waiting > 0:
        least = level(p, s, island)
        fixed = 0
        for at in range(s.counters[CARRIERS]):
            lead = s.carrier[at]
            if p.flows_island[s.carries[lead]] == island and s.rate[lead] < 0 and s.cap[lead] <= least:
                fix(p, s, lead, s.cap[lead])
                fixed += 1
        if fixed == 0:
            fixed = fix_on_full(p, s, island, least)
        waiting -= fixed


def level(p: Program, s: State, island: int) -> int:
    """The rate at which the first link is full; such links are marked."""
    least = FOREVER
    for link in range(p.island_first[island], p.island_first[island + 1]):
        if s.wanted[link] > FULL and s.link_open[link] > 0:
            least = min(least, s.link_left[link] // s.link_open[link])
    for link in range(p.island_first[island], p.island_first[island + 1]):
        s.link_full[link] = 0
        if s.wanted[link] > FULL and s.link_open[link] > 0 and s.link_left[link] // s.link_open[link] == least:
            s.link_full[link] = 1
    return least


def fix_on_full(p: Program, s: State, island: int, least: int) -> int:
    """Give all open carriers on full links the rate of these; how many there are."""
    fixed = 0
    for at in range(s.counters[CARRIERS]):
        lead = s.carrier[at]
        found = s.carries[lead]
        if p.flows_island[found] != island or s.rate[lead] >= 0:
            continue
        full = 0
        for entry in range(p.flows_first[found], p.flows_end[found]):
            full = max(full, s.link_full[p.flows_link[entry]])
        if full == 1:
            fix(p, s, lead, least)
            fixed += 1
    return fixed


def fix(p: Program, s: State, lead: int, rate: int) -> None:
    """Give a carrier its rate."""
    s.rate[lead] = rate
    use(p, s, lead, -1, rate)


def use(p: Program, s: State, lead: int, sign: int, rate: int) -> None:
    """Add a carrier to what is open on its links (``sign`` 1), or take it off (-1) with what its rate uses."""
    found = s.carries[lead]
    most = FULL // fastest(p, s, lead)
    for entry in range(p.flows_first[found], p.flows_end[found]):
        link = p.flows_link[entry]
        if s.wanted[link] > FULL:
            share = min(p.flows_share[entry], most)
            s.link_open[link] += sign * share
            s.link_left[link] -= share * rate
