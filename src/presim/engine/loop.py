"""The inner loop: hosts, streams and rendezvous as a discrete-event simulation.

This is plain Python over sequences of integers, compiled by `presim.engine.compiled` from this very source. It
indexes without looking: `presim.engine.program` builds arrays that point nowhere else.

Vocabulary: an *op* is a trace entry that concerns streams or blocks the host. A *slot* is one stream of one rank.
A slot's ops go through these states::

                     host reaches it        launch latency       all earlier ops of
                                            has passed           the slot have ended
    not issued ────────────────────► issued ───────────► ready ─────────────────────► at the head
                                                                                          │
       ended ◄── running ◄── resource taken (work), all members there (collective) ◄──────┤
         ▲                                                                                │
         └────────── at once (record), once the recording has ended (wait) ◄──────────────┘

The host needs no events of its own: what it waits for is always the end of an op, so it is walked ahead of time up
to the next op that blocks it, and goes on when that end is simulated. What runs goes at a pace that what runs beside
it may change. Times are integer nanoseconds.

A rank may be *open*: its host is a program that still runs, and asks for more than is known. Then nothing is simulated
from the moment on at which its host stands (the horizon), and `run` is called again once more is known
(`presim.engine.live`).

It is made of modules of which each uses only those before it: `state`, `heap` (events), `hosts`, `pace`, `links` and
`slowdown` (contention), `streams`, and this one.
"""

from __future__ import annotations

from presim.engine.heap import pop
from presim.engine.hosts import walk_host
from presim.engine.slowdown import settle_paces
from presim.engine.state import (
    CALLS,
    COMPUTE,
    COPY_D2H,
    COPY_H2D,
    COPY_PEER,
    DEVICE_SYNC,
    DIRTY,
    EVENT_SYNC,
    EXCLUSIVE,
    FOREVER,
    HEAP,
    MEET,
    MOMENT,
    PRIORITY,
    RECORD,
    RUN,
    SCALE,
    STREAM_SYNC,
    TOUCHED,
    WAIT,
    WAYS,
    Program,
    State,
)
from presim.engine.streams import advance, finish, give, postpone

__all__ = [
    "COMPUTE",
    "COPY_D2H",
    "COPY_H2D",
    "COPY_PEER",
    "DEVICE_SYNC",
    "EVENT_SYNC",
    "EXCLUSIVE",
    "MEET",
    "RECORD",
    "RUN",
    "SCALE",
    "STREAM_SYNC",
    "WAIT",
    "WAYS",
    "Program",
    "State",
    "run",
]


def run(p: Program, s: State) -> None:
    """Simulate until nothing can happen any more, or up to the horizon.

    Where no rank is open, ops that have no end then are in a deadlock.
    """
    s.horizon[0] = FOREVER
    for rank in range(len(p.rank_end)):
        walk_host(p, s, rank, s.host_time[rank])
    while True:
        if s.counters[TOUCHED] + s.counters[DIRTY] > 0 and is_over(s, s.counters[MOMENT]):
            settle_paces(p, s, s.counters[MOMENT])
        if s.counters[HEAP] == 0 or s.heap_time[0] >= s.horizon[0]:
            break
        now = s.heap_time[0]
        s.counters[MOMENT] = now
        while s.counters[HEAP] > 0 and s.heap_time[0] == now:
            key = s.heap_key[0]
            item = s.heap_item[0]
            pop(s)
            if key < PRIORITY:
                finish(p, s, item, now)
            else:
                s.pending[item] = 0
                advance(p, s, item, now)
        # Only now is it known who wants what at this moment; unless a host that was blocked until now may ask for more.
        while s.counters[CALLS] > 0:
            s.counters[CALLS] -= 1
            if now < s.horizon[0]:
                give(p, s, s.called[s.counters[CALLS]], now)
            else:
                postpone(p, s, s.called[s.counters[CALLS]], now)
        if now < s.horizon[0]:
            settle_paces(p, s, now)


def is_over(s: State, moment: int) -> bool:
    """Whether nothing more can happen at a moment at which `run` returned because a host could still ask for more."""
    return moment < s.horizon[0] and (s.counters[HEAP] == 0 or s.heap_time[0] != moment)
