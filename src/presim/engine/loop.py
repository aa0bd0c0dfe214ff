"""The inner loop: hosts, streams and rendezvous as a discrete-event simulation.

This is plain Python over sequences of integers. `presim.engine.compiled_loop` compiles it from the same source.
Indices are not checked here: `presim.engine.program` builds arrays whose indices are valid.

An *op* is a trace entry that concerns streams or blocks the host. A *slot* is one stream of one rank.
A slot's ops go through these states::

                     host reaches it        launch latency       all earlier ops of
                                            has passed           the slot have ended
    not issued ────────────────────► issued ───────────► ready ─────────────────────► at the head
                                                                                          │
       ended ◄── running ◄── resource taken (work), all members there (collective) ◄──────┤
         ▲                                                                                │
         └────────── at once (record), once the recording has ended (wait) ◄──────────────┘

Hosts have no events. A host only ever waits for the end of an op, so it advances to the next op that blocks it and
continues when that end is simulated. Work that runs at the same time may slow each other (`slowdown`). Times are
integer nanoseconds.

A rank is *open* while its host may still issue ops that are not known yet. Nothing is simulated from the time of the
first open host on (the *horizon*). `run` is called again once more ops are known (`presim.engine.live`).

The loop consists of these modules, each of which uses only earlier ones: `state`, `heap` (events), `hosts`,
`pace`, `links` and `slowdown` (contention), `streams`, `loop`.
"""

from __future__ import annotations

from presim.engine.event_heap import pop
from presim.engine.hosts import advance_host
from presim.engine.slowdown import update_slowdowns
from presim.engine.state import (
    CHANGED,
    COMPUTE,
    COPY_D2H,
    COPY_H2D,
    COPY_PEER,
    DEVICE_SYNC,
    DIRTY,
    EVENT_SYNC,
    EXCLUSIVE,
    FETCH,
    FETCH_WAIT,
    FOREVER,
    GRANTS,
    HEAP,
    MEET,
    MOMENT,
    PRIORITY,
    RECORD,
    RUN,
    SCALE,
    STREAM_SYNC,
    WAIT,
    WAYS,
    LoopState,
    Program,
)
from presim.engine.streams import advance, finish, grant, requeue

__all__ = [
    "COMPUTE",
    "COPY_D2H",
    "COPY_H2D",
    "COPY_PEER",
    "DEVICE_SYNC",
    "EVENT_SYNC",
    "EXCLUSIVE",
    "FETCH",
    "FETCH_WAIT",
    "MEET",
    "RECORD",
    "RUN",
    "SCALE",
    "STREAM_SYNC",
    "WAIT",
    "WAYS",
    "LoopState",
    "Program",
    "run",
]


def run(p: Program, s: LoopState) -> None:
    """Simulate until no event is left, or up to the horizon.

    If no rank is open, ops without an end are in a deadlock.
    """
    s.horizon[0] = FOREVER
    for rank in range(p.rank_count[0]):
        advance_host(p, s, rank, s.host_time[rank])
    while True:
        if s.counters[CHANGED] + s.counters[DIRTY] > 0 and is_moment_complete(s, s.counters[MOMENT]):
            update_slowdowns(p, s, s.counters[MOMENT])
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
        # All requests for resources at this moment are known now, unless an open host was unblocked at this moment.
        while s.counters[GRANTS] > 0:
            s.counters[GRANTS] -= 1
            if now < s.horizon[0]:
                grant(p, s, s.to_grant[s.counters[GRANTS]], now)
            else:
                requeue(p, s, s.to_grant[s.counters[GRANTS]], now)
        if now < s.horizon[0]:
            update_slowdowns(p, s, now)


def is_moment_complete(s: LoopState, moment: int) -> bool:
    """Whether no further event can occur at the moment at which the previous `run` stopped."""
    return moment < s.horizon[0] and (s.counters[HEAP] == 0 or s.heap_time[0] != moment)
