"""Data structures of the loop: codes, the program, the state."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

# Lists where uncompiled, numpy int64 where compiled; mypy is told the former.
Column: TypeAlias = list[int]

# Codes of ops. The first four are put on streams, the others block the host.
RUN = 0  # work that takes an exclusive resource
MEET = 1  # a collective: starts when all simulated members are at it
RECORD = 2
WAIT = 3
EVENT_SYNC = 4
STREAM_SYNC = 5
DEVICE_SYNC = 6

# Resources of one rank of which each runs one op at a time.
COMPUTE = 0
COPY_H2D = 1
COPY_D2H = 2
COPY_PEER = 3
EXCLUSIVE = 4  # how many there are

# Events at the same time: what ends comes before what begins, so that an end and a start at the same nanosecond hand
# over the resource. After that: first pushed, first served.
END = 0  # item: op
READY = 1  # item: slot, whose head may be able to go
PRIORITY = 1 << 60  # key = priority * PRIORITY + sequence
FOREVER = 1 << 62

# State of the op at the head of a slot.
OPEN = 0  # nobody has looked yet, or it is not ready
QUEUED = 1  # ready, and wants a resource
BLOCKED = 2  # waits for a recording

WAYS = 2  # of a port: out and in

SCALE = 1 << 10  # a pace of SCALE is that of an op alone on its rank; twice that takes twice as long

# Links: a carrier of rate r (in 1/RATE bytes a ns) uses r * share of FULL. 65,536 full carriers fit into 64 bits.
RATE = 1 << 24
FULL = 1 << 46
MOST_RATE = 1 << 40
MOST_FLOW = 1 << 38  # bytes of a flow

# Indices into State.counters.
HEAP = 0  # events in the heap
SEQUENCE = 1  # events pushed so far
CALLS = 2  # resources in State.called
TOUCHED = 3  # ranks in State.touched
MOMENT = 4  # time of the last events
SETTLED = 5  # how often paces were settled
CARRIERS = 6  # transfers in State.carrier
DIRTY = 7  # islands in State.dirty
COUNTERS = 8


class Program(NamedTuple):
    """The input of the loop. Ops of a rank are `stride` apart, in the order its host asks; so are its slots."""

    stride: Column  # [0] 1: one rank after the other; ranks that grow are interleaved
    rank_end: Column  # [rank] where the op after its last one would stand
    rank_open: Column  # [rank] 1: its host may ask for more
    slot_first_of: Column  # [rank] first slot
    slot_end: Column  # [rank] where the slot after its last one would stand
    slot_rank: Column  # [slot]
    slot_first: Column  # [slot] first op put on it, or -1
    slot_priority: Column  # [slot] lower is more urgent
    code: Column  # [op]
    host_ns: Column  # [op] CPU time since the op before
    slot: Column  # [op] slot it is put on, or waits for; -1: none
    following: Column  # [op] next op put on the same slot, or -1
    duration: Column  # [op] ns when running alone
    resource: Column  # [op] of RUN: COMPUTE..COPY_PEER
    target: Column  # [op] of WAIT and EVENT_SYNC: the recording, or -1: nothing to wait for
    match: Column  # [op] of MEET: which rendezvous, or -1: nobody else is simulated
    joins: Column  # [op] 1: part of one launch with the op before it on its slot
    match_needed: Column  # [match] ops that meet
    contends: Column  # [op] class of contention
    classes: Column  # [0] how many classes there are; 0: nothing slows anything
    slows: Column  # [class * classes + class beside it] what that adds to each ns of its work, in 1/SCALE
    takes: Column  # [class * WAYS + way] part of a shared port that one rank takes, in 1/SCALE
    port: Column  # [rank] port that its GPU shares with others; -1: it has ports of its own
    port_first: Column  # [port] first rank there
    port_next: Column  # [rank] next rank at its port, or -1
    voice_first: Column  # [rank] first of its voices; one more at the end
    voice_port: Column  # [voice] port at which the rank counts
    voices: Column  # [voice] as how many ranks it counts there, in 1/SCALE
    flows: Column  # [op] class of flows on links; 0: on none
    flows_first: Column  # [flows] its first entry
    flows_end: Column  # [flows] where the entry after its last one would stand
    flows_bytes: Column  # [flows] bytes of each of its flows
    flows_island: Column  # [flows] the island of its links
    flows_link: Column  # [entry] link
    flows_share: Column  # [entry] flows over the link's bandwidth: what a rate of 1/RATE bytes a ns takes of FULL
    island_first: Column  # [island] first of its links; one more at the end
    launch_latency: Column  # [0] ns from issue to ready
    sync_latency: Column  # [0] ns from an end on the device to the host that waited for it
    queue_depth: Column  # [0] ops issued and not ended on one slot before the next launch blocks the host


class State(NamedTuple):
    """What changes while the loop runs; -1 stands for: not yet."""

    issue: Column  # [op]
    start: Column  # [op]
    end: Column  # [op]
    host_op: Column  # [rank] next op of the host; where it stops, the op that blocks it
    host_time: Column  # [rank]
    host_spent: Column  # [rank] last op whose host_ns is in host_time
    outstanding: Column  # [slot] ops issued and not ended
    rank_outstanding: Column  # [rank] the same over all its slots
    last_end: Column  # [slot]
    rank_last_end: Column  # [rank]
    head: Column  # [slot] first op that has not begun, or -1
    head_state: Column  # [slot] OPEN, QUEUED, BLOCKED
    in_flight: Column  # [slot] ops that have begun and not ended; above 1 only within one launch
    pending: Column  # [slot] 1: a READY for it is in the heap. It is never later than it needs to be.
    running: Column  # [rank * EXCLUSIVE + resource] op, or -1
    freed: Column  # [rank * EXCLUSIVE + resource] when it was last free again; 0: from the beginning
    queued: Column  # [rank * EXCLUSIVE + resource] slots that want it
    called: Column  # stack of resources to be given to somebody at the end of this moment
    is_called: Column  # [rank * EXCLUSIVE + resource] 1: stands in `called`
    waiter_first: Column  # [op] of RECORD: first slot that waits for it
    waiter_next: Column  # [slot]
    arrived: Column  # [match] ops that are at it
    match_first: Column  # [match] the last of them to arrive
    match_next: Column  # [op]
    alone: Column  # [op] ns its work takes with nothing beside it, once it has begun
    lead: Column  # [op] running: the op whose END is that of all it meets; itself where it meets nobody
    beside: Column  # [rank] first op that runs there
    beside_next: Column  # [op]
    drag: Column  # [op] what those beside it add to each ns of its work, in 1/SCALE
    load: Column  # [port * WAYS + way] parts of the port that running ops ask for, in 1/SCALE; above SCALE: too much
    touched: Column  # stack of ranks on which something may go at another pace from this moment on
    is_touched: Column  # [rank] 1: stands in `touched`
    settled: Column  # [lead] the count of SETTLED when its pace was last looked at
    pace: Column  # [lead] time that its work takes, in 1/SCALE
    by_port: Column  # [lead] 1: the load of a shared port or link sets its pace
    crowded: Column  # [lead] ns it has lost to such loads
    left: Column  # [lead] ns of work left at `since`
    since: Column  # [lead]; [op] of MEET, before it has begun: when it came
    carrier: Column  # [place] lead of a running transfer that is on links
    carrier_place: Column  # [lead] where it stands there
    carries: Column  # [lead] class of flows while it is a carrier; else 0
    burden: Column  # [lead] what its neighbours slow it by, as `slowdown.burden` has it; -1: not known yet
    cap: Column  # [lead] rate that its neighbours leave it, in 1/RATE bytes a ns
    rate: Column  # [lead] rate that links leave it; -1: open
    wanted: Column  # [link] what the caps of its carriers ask for; above FULL: it is crowded
    link_left: Column  # [link] what fixed carriers leave
    link_open: Column  # [link] shares of open carriers
    link_full: Column  # [link] 1: open carriers fill it before any other link
    dirty: Column  # stack of islands to be solved at the end of this moment
    is_dirty: Column  # [island] 1: stands in `dirty`
    place: Column  # [lead] where its END stands in the heap
    heap_time: Column
    heap_key: Column
    heap_item: Column
    counters: Column
    horizon: Column  # [0] where the first host stands that may ask for more; nothing from there on is simulated
