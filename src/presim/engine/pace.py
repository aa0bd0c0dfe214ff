"""Contention: what runs on a rank slows what runs beside it, for as long as both run.

Each running op has a *drag*: what those beside it on its rank add to each ns of its work, in 1/SCALE. A collective of
several simulated ranks goes at the pace of the member with the largest drag. When an op begins or ends, the work that
the others have done by then is settled at their old pace, and their ends are moved.

Work done is rounded down and time up, so that nothing ends early: at most 1 ns a change is lost.
"""

from __future__ import annotations

from presim.engine.heap import move
from presim.engine.state import SCALE, Program, State


def enter(p: Program, s: State, op: int, now: int) -> None:
    """An op begins beside those that run on its rank."""
    if p.classes[0] == 0:
        return
    rank = p.slot_rank[p.slot[op]]
    drag = 0
    other = s.beside[rank]
    while other >= 0:
        drag += added(p, op, other)
        slow(p, s, other, added(p, other, op), now)
        other = s.beside_next[other]
    s.beside_next[op] = s.beside[rank]
    s.beside[rank] = op
    slow(p, s, op, drag, now)


def leave(p: Program, s: State, op: int, now: int) -> None:
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
            slow(p, s, other, -added(p, other, op), now)
            before = other
        other = s.beside_next[other]


def added(p: Program, op: int, other: int) -> int:
    """What `other` adds to each ns of `op`; the messages of one launch share the wires in their prices."""
    if p.slot[op] == p.slot[other]:
        return 0
    return p.slows[p.contends[op] * p.classes[0] + p.contends[other]]


def slow(p: Program, s: State, op: int, by: int, now: int) -> None:
    """Change the drag of a running op, and with it the end of what it is part of."""
    if by == 0:
        return
    s.drag[op] += by
    drag = s.drag[op]
    if p.match[op] >= 0:
        member = s.match_first[p.match[op]]
        while member >= 0:
            drag = max(drag, s.drag[member])
            member = s.match_next[member]
    lead = s.lead[op]
    if s.pace[lead] == SCALE + drag:
        return
    s.left[lead] = max(0, s.left[lead] - done(now - s.since[lead], s.pace[lead]))
    s.since[lead] = now
    s.pace[lead] = SCALE + drag
    move(s, lead, now + lasts(s.left[lead], s.pace[lead]))


def done(time: int, pace: int) -> int:
    """Work done in this time, rounded down."""
    if pace == SCALE:
        return time
    return time // pace * SCALE + time % pace * SCALE // pace


def lasts(work: int, pace: int) -> int:
    """Time that this work takes, rounded up."""
    if pace == SCALE:
        return work
    return work // SCALE * pace + (work % SCALE * pace + SCALE - 1) // SCALE
