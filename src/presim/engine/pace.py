"""Accounts the work of running ops, and moves their ends when their slowdown changes.

Work is rounded down and time is rounded up, so no op ends early. At most 1 ns is lost per change.
"""

from __future__ import annotations

from presim.engine.event_heap import move
from presim.engine.state import SCALE, LoopState


def change_slowdown(s: LoopState, lead: int, code: int, now: int) -> None:
    """Set the slowdown of a rendezvous by its code (`presim.engine.slowdown.slowdown_code`) and move its end."""
    if code == 2 * (s.slowdown[lead] - SCALE) + s.limited_by_port[lead]:
        return
    s.work_left[lead] = max(0, s.work_left[lead] - account_work(s, lead, now))
    s.since[lead] = now
    s.slowdown[lead] = SCALE + code // 2
    s.limited_by_port[lead] = code % 2
    move(s, lead, now + time_for(s.work_left[lead], s.slowdown[lead]))


def account_work(s: LoopState, lead: int, now: int) -> int:
    """Work done since the last change of slowdown. Adds the time lost to shared ports or links to `port_delay`."""
    worked = work_done(now - s.since[lead], s.slowdown[lead])
    if s.limited_by_port[lead] == 1:
        s.port_delay[lead] += now - s.since[lead] - worked
    return worked


def work_done(time: int, slowdown: int) -> int:
    """Work done in this time, rounded down."""
    if slowdown == SCALE:
        return time
    return time // slowdown * SCALE + time % slowdown * SCALE // slowdown


def time_for(work: int, slowdown: int) -> int:
    """Time that this work takes, rounded up."""
    if slowdown == SCALE:
        return work
    return work // SCALE * slowdown + (work % SCALE * slowdown + SCALE - 1) // SCALE
