"""Contention: work that overlaps on a rank, or on a network port that ranks share, slows each other.

Each running op has a *drag*: what those beside it on its rank add to each ns of its work, in 1/SCALE. A shared port has
a *load*: the parts of it that running ops ask for, simulated or stood for. Where the load is above SCALE, all who use
the port take longer in proportion. The larger of drag and excess load slows an op, because either alone would.
A collective of several simulated ranks goes at the pace of its slowest member. When ops begin or end, those beside
them may go on at another pace. Once all that happens at that moment is known, the work that these have done by then is
settled at their old pace, and their ends are moved.
A transfer on links of a described fabric also goes no faster than these allow (`presim.engine.links`).
"""

from __future__ import annotations

from presim.engine.links import hold_back, settle_links
from presim.engine.pace import change_pace
from presim.engine.state import SCALE, SETTLED, TOUCHED, WAYS, Program, State


def enter(p: Program, s: State, op: int) -> None:
    """An op begins beside those that run on its rank."""
    if p.classes[0] == 0:
        return
    rank = p.slot_rank[p.slot[op]]
    drag = 0
    other = s.beside[rank]
    while other >= 0:
        drag += added(p, op, other)
        slow(s, rank, other, added(p, other, op))
        other = s.beside_next[other]
    s.beside_next[op] = s.beside[rank]
    s.beside[rank] = op
    slow(s, rank, op, drag)
    if p.port[rank] >= 0:
        share(p, s, op, 1)


def leave(p: Program, s: State, op: int) -> None:
    """An op ends; the others go on without it."""
    if p.classes[0] == 0:
        return
    rank = p.slot_rank[p.slot[op]]
    before = -1
    other = s.beside[rank]
    while other >= 0:
        if other == op:
            if before < 0:
                s.beside[rank] = s.beside_next[op]
            else:
                s.beside_next[before] = s.beside_next[op]
        else:
            slow(s, rank, other, -added(p, other, op))
            before = other
        other = s.beside_next[other]
    if p.port[rank] >= 0:
        share(p, s, op, -1)


def added(p: Program, op: int, other: int) -> int:
    """What `other` adds to each ns of `op`; the messages of one launch share the wires in their prices."""
    if p.slot[op] == p.slot[other]:
        return 0
    return p.slows[p.contends[op] * p.classes[0] + p.contends[other]]


def slow(s: State, rank: int, op: int, by: int) -> None:
    """Change the drag of a running op."""
    if by != 0:
        s.drag[op] += by
        touch(s, rank)


def touch(s: State, rank: int) -> None:
    """Look at what runs on a rank once it is known what happens at this moment."""
    if s.is_touched[rank] == 0:
        s.is_touched[rank] = 1
        s.touched[s.counters[TOUCHED]] = rank
        s.counters[TOUCHED] += 1


def share(p: Program, s: State, op: int, sign: int) -> None:
    """Add an op to the loads of shared ports (``sign`` 1) or take it off (-1), wherever its rank has a voice."""
    rank = p.slot_rank[p.slot[op]]
    for way in range(WAYS):
        part = p.takes[p.contends[op] * WAYS + way]
        if part == 0:
            continue
        others = of_launch(p, s, op, rank, way)
        for voice in range(p.voice_first[rank], p.voice_first[rank + 1]):
            port = p.voice_port[voice]
            load = s.load[port * WAYS + way]
            by = max(part, others) * p.voices[voice] // SCALE - others * p.voices[voice] // SCALE
            s.load[port * WAYS + way] = load + sign * by
            if max(load, load + sign * by) > SCALE:
                there = p.port_first[port]
                while there >= 0:
                    touch(s, there)
                    there = p.port_next[there]


def settle_paces(p: Program, s: State, now: int) -> None:
    """Give what runs on touched ranks the pace that its neighbours leave it, once no host can change that any more.

    What comes of a moment depends on who runs after it, not on the order in which this became known: work that goes on
    at its old pace is not rounded.
    """
    s.counters[SETTLED] += 1
    while s.counters[TOUCHED] > 0:
        s.counters[TOUCHED] -= 1
        rank = s.touched[s.counters[TOUCHED]]
        s.is_touched[rank] = 0
        op = s.beside[rank]
        while op >= 0:
            lead = s.lead[op]
            if s.settled[lead] != s.counters[SETTLED]:
                s.settled[lead] = s.counters[SETTLED]
                set_pace(p, s, lead, max(now, s.since[lead]))
            op = s.beside_next[op]
    settle_links(p, s, now)


def of_launch(p: Program, s: State, op: int, rank: int, way: int) -> int:
    """The largest part that others of the op's launch take of a port; its messages share the port in their prices."""
    most = 0
    other = s.beside[rank]
    while other >= 0:
        if other != op and p.slot[other] == p.slot[op]:
            most = max(most, p.takes[p.contends[other] * WAYS + way])
        other = s.beside_next[other]
    return most


def burden(p: Program, s: State, op: int) -> int:
    """What slows an op, times 2: its drag, or too large a load of a shared port it uses; then plus 1."""
    port = p.port[p.slot_rank[p.slot[op]]]
    if port < 0:
        return 2 * s.drag[op]
    load = SCALE
    for way in range(WAYS):
        if p.takes[p.contends[op] * WAYS + way] > 0:
            load = max(load, s.load[port * WAYS + way])
    return max(2 * s.drag[op], 2 * (load - SCALE) + (1 if load > SCALE else 0))


def set_pace(p: Program, s: State, lead: int, now: int) -> None:
    """Move the end of all that a lead meets to where the burden of the slowest member puts it, or links do."""
    most = burden(p, s, lead)
    if p.match[lead] >= 0:
        member = s.match_first[p.match[lead]]
        while member >= 0:
            most = max(most, burden(p, s, member))
            member = s.match_next[member]
    if s.carries[lead] > 0:
        hold_back(p, s, lead, most, now)
    else:
        change_pace(s, lead, most, now)
