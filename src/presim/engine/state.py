"""Data structures of the loop: codes, the program, the state."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

# Lists in the interpreted loop, numpy int64 arrays in the compiled loop. mypy checks the former.
Column: TypeAlias = list[int]

# Codes of ops. The first four run on streams, the others concern the host and, except FETCH, block it.
RUN = 0  # work that takes an exclusive resource
MEET = 1  # a collective: starts when all simulated members are at it
RECORD = 2
WAIT = 3
EVENT_SYNC = 4
STREAM_SYNC = 5
DEVICE_SYNC = 6
FETCH = 7  # a process beside the host begins to prepare a batch, after its former ones; the host goes on
FETCH_WAIT = 8

# Resources of one rank. Each runs one op at a time.
COMPUTE = 0
COPY_H2D = 1
COPY_D2H = 2
COPY_PEER = 3
EXCLUSIVE = 4  # number of resources

# Priorities of events at the same time. Ends come before starts, so that a resource freed at a nanosecond can be taken
# at the same nanosecond. Events of equal priority are processed in the order in which they were pushed.
END = 0  # item: op
READY = 1  # item: slot; its head may be able to start
PRIORITY = 1 << 60  # key = priority * PRIORITY + sequence
FOREVER = 1 << 62

# State of the op at the head of a slot.
OPEN = 0  # not examined yet, or not ready
QUEUED = 1  # ready, waits for a resource
BLOCKED = 2  # waits for a recording

WAYS = 2  # directions of a port: out and in

SCALE = 1 << 10  # fixed-point 1.0: the slowdown of an op that runs alone; with 2 * SCALE it takes twice as long

# Links: a carrier of rate r (in 1/RATE bytes a ns) uses r * share of FULL. 65,536 full carriers fit into 64 bits.
RATE = 1 << 24
FULL = 1 << 46
MOST_RATE = 1 << 40
MOST_FLOW = 1 << 38  # bytes of a flow

# Indices into State.counters.
HEAP = 0  # events in the heap
SEQUENCE = 1  # events pushed so far
GRANTS = 2  # resources in State.to_grant
CHANGED = 3  # ranks in State.changed
MOMENT = 4  # time of the last events
UPDATES = 5  # number of calls of update_slowdowns
CARRIERS = 6  # transfers in State.carrier
DIRTY = 7  # islands in State.dirty
COUNTERS = 8


class Program(NamedTuple):
    """The input of the loop. Ops of a rank are `stride` apart, in the order of issue. So are its slots."""

    rank_count: Column  # [0] number of ranks
    stride: Column  # [0] 1: ranks one after the other; number of ranks: ranks that grow are interleaved
    rank_end: Column  # [rank] index of the op after its last one
    rank_open: Column  # [rank] 1: its host may issue further ops
    slot_first_of: Column  # [rank] first slot
    slot_end: Column  # [rank] index of the slot after its last one
    slot_rank: Column  # [slot]
    slot_first: Column  # [slot] first op on it, or -1
    slot_priority: Column  # [slot] lower is more urgent
    code: Column  # [op]
    host_ns: Column  # [op] CPU time since the previous op
    slot: Column  # [op] slot that it runs on or waits for; -1: none
    following: Column  # [op] next op on the same slot, or -1
    duration: Column  # [op] ns when running alone
    resource: Column  # [op] of RUN: COMPUTE..COPY_PEER
    # [op] of WAIT and EVENT_SYNC: the recording; of FETCH: the worker's former one; of FETCH_WAIT: the FETCH; -1: none
    target: Column
    match: Column  # [op] of MEET: its rendezvous; -1: no other simulated rank takes part
    joins: Column  # [op] 1: shares a launch with the previous op on its slot
    match_needed: Column  # [match] number of ops that meet
    contends: Column  # [op] contention class
    classes: Column  # [0] number of contention classes; 0: no contention
    slows: Column  # [class * classes + other class] time that the other adds to each ns of work, in 1/SCALE
    takes: Column  # [class * WAYS + way] share of a port that one rank uses, in 1/SCALE
    port: Column  # [rank] port that its GPU shares with others; -1: its ports are not shared
    port_first: Column  # [port] first rank there
    port_next: Column  # [rank] next rank at its port, or -1
    weight_first: Column  # [rank] first of its weights; one more element at the end
    weight_port: Column  # [weight] port that the weight is for
    weights: Column  # [weight] number of ranks that the rank counts for there, in 1/SCALE
    flows: Column  # [op] class of flows on links; 0: on none
    flows_first: Column  # [flows] its first entry
    flows_end: Column  # [flows] index of the entry after its last one
    flows_bytes: Column  # [flows] bytes of each of its flows
    flows_uncrowded: Column  # [flows] part of the duration that a fabric which limits nothing would need, in 1/SCALE
    flows_island: Column  # [flows] the island of its links
    flows_link: Column  # [entry] link
    link_entries: Column  # [0] number of entries in `flows_link`; 0: no transfer is on links
    flows_share: Column  # [entry] flows over the link's bandwidth: what a rate of 1/RATE bytes a ns takes of FULL
    island_first: Column  # [island] first of its links; one more element at the end
    launch_latency: Column  # [0] ns from issue to ready
    sync_latency: Column  # [0] ns from an end on the device to the return of the host that waits for it
    queue_depth: Column  # [0] unfinished ops on one slot at which the next launch blocks the host


class LoopState(NamedTuple):
    """The mutable state of the loop; -1: not yet."""

    issue: Column  # [op]
    start: Column  # [op]
    end: Column  # [op]
    host_op: Column  # [rank] next op of the host; if it is blocked, the op that blocks it
    host_time: Column  # [rank]
    host_spent: Column  # [rank] last op whose host_ns is in host_time
    outstanding: Column  # [slot] ops issued and not ended
    rank_outstanding: Column  # [rank] the same over all its slots
    last_end: Column  # [slot]
    rank_last_end: Column  # [rank]
    head: Column  # [slot] first op that has not started, or -1
    head_state: Column  # [slot] OPEN, QUEUED, BLOCKED
    in_flight: Column  # [slot] ops that have started and not ended; above 1 only within one launch
    pending: Column  # [slot] 1: the heap has a READY event for it, which is never later than necessary
    running: Column  # [rank * EXCLUSIVE + resource] op, or -1
    freed: Column  # [rank * EXCLUSIVE + resource] when it last became free; 0: never used
    queued: Column  # [rank * EXCLUSIVE + resource] number of slots that wait for it
    to_grant: Column  # stack of free resources to grant at the end of this moment
    is_to_grant: Column  # [rank * EXCLUSIVE + resource] 1: it is in `to_grant`
    waiter_first: Column  # [op] of RECORD: first slot that waits for it
    waiter_next: Column  # [slot]
    arrived: Column  # [match] number of ops that have arrived
    match_first: Column  # [match] the op that arrived last
    match_next: Column  # [op] the op that arrived before it
    uncontended_ns: Column  # [op] duration without contention, ns; set at its start
    lead: Column  # [op] of a running op: the op that holds the END of its rendezvous; without one, itself
    active_first: Column  # [rank] first running op
    active_next: Column  # [op] next running op of the rank
    interference: Column  # [op] time that other ops of its rank add to each ns of its work, in 1/SCALE
    load: Column  # [port * WAYS + way] sum of the shares that running ops use, in 1/SCALE; above SCALE: overloaded
    changed: Column  # stack of ranks on which slowdowns may change at this moment
    is_changed: Column  # [rank] 1: it is in `changed`
    last_update: Column  # [lead] the value of UPDATES when its slowdown was last computed
    slowdown: Column  # [lead] time per ns of its work, in 1/SCALE
    limited_by_port: Column  # [lead] 1: the load of a shared port or link determines its slowdown
    port_delay: Column  # [lead] ns lost to overloaded ports and links
    work_left: Column  # [lead] ns of work left at `since`
    since: Column  # [lead] last change of its slowdown; [op] of MEET before its start: its arrival
    carrier: Column  # [position] lead of a running transfer that is on links
    carrier_position: Column  # [lead] its index there
    carries: Column  # [lead] class of flows while it is a carrier; else 0
    own_code: Column  # [lead] slowdown code without links; -1: not known yet
    cap: Column  # [lead] rate without links, in 1/RATE bytes a ns
    rate: Column  # [lead] rate that links allow; -1: not fixed yet
    demand: Column  # [link] what the caps of its carriers use of FULL; above FULL: the link is crowded
    link_left: Column  # [link] what fixed carriers leave of FULL
    link_open: Column  # [link] shares of open carriers
    link_full: Column  # [link] 1: open carriers fill it before any other link
    dirty: Column  # stack of islands to solve at the end of this moment
    is_dirty: Column  # [island] 1: it is in `dirty`
    heap_position: Column  # [lead] index of its END in the heap
    heap_time: Column
    heap_key: Column
    heap_item: Column
    counters: Column
    horizon: Column  # [0] earliest time of an open host; no event from there on is simulated
