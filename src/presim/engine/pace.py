"""Paces: how fast running work goes, what it has done so far, and when it ends.

Work done is rounded down and time up, so that nothing ends early: at most 1 ns a change of pace is lost.
"""

from __future__ import annotations

from presim.engine.heap import move
from presim.engine.state import SCALE, State


def change_pace(s: State, lead: int, burden: int, now: int) -> None:
    """Move the end of all that a lead meets to where a burden (`presim.engine.slowdown.burden`) puts it."""
    if burden == 2 * (s.pace[lead] - SCALE) + s.by_port[lead]:
        return
    s.left[lead] = max(0, s.left[lead] - settle(s, lead, now))
    s.since[lead] = now
    s.pace[lead] = SCALE + burden // 2
    s.by_port[lead] = burden % 2
    move(s, lead, now + lasts(s.left[lead], s.pace[lead]))


def settle(s: State, lead: int, now: int) -> int:
    """Work done since the pace last changed; what was lost to a shared port or link is noted."""
    worked = done(now - s.since[lead], s.pace[lead])
    if s.by_port[lead] == 1:
        s.crowded[lead] += now - s.since[lead] - worked
    return worked


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
