"""The loop over arrivals and engines, in order of time.

An engine core behaves as vLLM's: it schedules while fewer than DEPTH batches are in flight; otherwise it waits for the
oldest batch and processes its output. A request that arrives at the time of a decision takes part in it.
With pipeline stages, a call of the scheduler without a batch is not the last (`presim.serving.fast.stage_batches`).
"""

from __future__ import annotations

from presim.serving.fast.lifecycle import apply_engine_changes, end_client_request, end_replica_request
from presim.serving.fast.lockstep import own_ns, take_part
from presim.serving.fast.output import update
from presim.serving.fast.policy import schedule
from presim.serving.fast.request_routing import arrive, transfer
from presim.serving.fast.serving_state import (
    BACK_NS,
    BLOCKS,
    CHANGE,
    DEPTH,
    ENTRIES,
    EVENT_ROWS,
    EVENTS,
    FINISHED,
    FOREVER,
    GAP_ROWS,
    HOST_NS,
    IDLE,
    KNOBS,
    LOG,
    LOG_CHOSEN,
    LOG_END,
    LOG_PREEMPTED,
    LOG_PREFILL,
    LOG_REPLICA,
    LOG_ROWS,
    LOG_RUNNING,
    LOG_SEQS,
    LOG_START,
    LOG_TOKENS,
    LOG_USED,
    LOG_WAITING,
    MAX_SEQS,
    MEMBERS,
    NOW,
    OPEN,
    OUTPUT_NS,
    PAIRS,
    PENDING,
    PREFILL,
    RECORD,
    REPLICAS,
    ROLE,
    SCHEDULE,
    SCHEDULE_ROWS,
    STAGES,
    STAGES_AT_MOST,
    STEPS,
    UPDATE,
    Program,
    ServingState,
)
from presim.serving.fast.shared_pool import store_batch
from presim.serving.fast.stage_batches import (
    EMPTY_STEP_NS,
    add_empty_batch,
    can_schedule_later,
    through_stages,
)
from presim.serving.fast.step_cost import device_ns, host_ns, launch_ns, mask_ns, sampling_ns


def run(p: Program, s: ServingState) -> int:
    """Go on until all requests are finished (returns 0) or a log has no more room (returns 1)."""
    replicas = p.fleet_knobs[REPLICAS]
    room = p.fleet_knobs[LOG_ROWS] - 2
    pair_room = p.fleet_knobs[GAP_ROWS]
    widest = 0
    for replica in range(replicas):
        widest = max(widest, p.knobs[replica * KNOBS + MAX_SEQS])
    while s.counters[OPEN] > 0:
        if s.counters[STEPS] >= room or s.counters[PAIRS] + widest + 2 >= pair_room:
            return 1
        if p.fleet_knobs[RECORD] and s.counters[ENTRIES] + widest + 2 >= p.fleet_knobs[SCHEDULE_ROWS]:
            return 1
        if s.counters[EVENTS] + 2 * replicas >= p.fleet_knobs[EVENT_ROWS]:
            return 1
        first = 0
        for replica in range(1, replicas):
            if s.wake[replica] < s.wake[first]:
                first = replica
        change = s.counters[CHANGE]
        if change <= s.wake[first] and (s.counters[PENDING] == 0 or change <= s.heap_time[0]) and change < FOREVER:
            apply_engine_changes(p, s)
        elif s.counters[PENDING] > 0 and s.heap_time[0] <= s.wake[first]:
            arrive(p, s)
        elif s.wake[first] == FOREVER:
            return 2  # no progress is possible: a request never fits
        else:
            run_engine(p, s, first)
    return 0


def run_engine(p: Program, s: ServingState, replica: int) -> None:
    """One decision of an engine's core."""
    now = s.wake[replica]
    s.counters[NOW] = now
    s.clock[replica] = max(s.clock[replica], now)
    if s.action[replica] == UPDATE:
        finish_oldest(p, s, replica)
    else:
        start_step(p, s, replica)
    depth = p.knobs[replica * KNOBS + DEPTH]
    has_work = s.n_running[replica] + s.waiting[replica] > 0
    slots = s.n_slots[replica]
    if s.action[replica] == IDLE:  # nothing could be scheduled
        has_work = False
    if slots < depth and has_work:
        s.action[replica] = SCHEDULE
        s.wake[replica] = s.clock[replica]
    elif slots > 0:
        s.action[replica] = UPDATE
        slot_index = p.slot_base[replica] + s.oldest[replica]
        s.wake[replica] = max(s.clock[replica], s.slot_end[slot_index])
    else:
        s.action[replica] = IDLE
        s.wake[replica] = FOREVER


def start_step(p: Program, s: ServingState, replica: int) -> None:
    """Schedule a batch and hand it to the device."""
    knob = replica * KNOBS
    slot = (s.oldest[replica] + s.n_slots[replica]) % p.knobs[knob + DEPTH]
    scheduled_ns = s.clock[replica]
    preempted = schedule(p, s, replica, slot, scheduled_ns)
    slot_index = p.slot_base[replica] + slot
    if s.slot_count[slot_index] == 0:
        if can_schedule_later(p, s, replica):
            add_empty_batch(p, s, replica)
        else:
            s.action[replica] = IDLE
        return
    entry = s.counters[STEPS]
    s.counters[STEPS] += 1
    ns = device_ns(p, s, replica, slot, entry)
    ready = scheduled_ns + host_ns(p, replica, HOST_NS, s.slot_count[slot_index])
    s.clock[replica] = ready
    s.entry_of[replica] = entry
    log_step(p, s, replica, slot, entry, preempted)
    launch = launch_ns(p, replica, s.log[entry * LOG + LOG_TOKENS], s.log[entry * LOG + LOG_PREFILL])
    if p.knobs[knob + MEMBERS] > 1:
        rank_ns = own_ns(p, replica, ns, launch, s.log[entry * LOG + LOG_TOKENS])
        start, end = take_part(p, s, replica, scheduled_ns, ready, rank_ns, s.log[entry * LOG + LOG_TOKENS])
    elif p.knobs[knob + STAGES] > 1:
        start, end = through_stages(p, s, replica, slot, ready, max(ns, launch))
    else:  # host and device are two lines: the device waits for the last launch, the host for no kernel
        start = max(ready, s.stage_free[replica * STAGES_AT_MOST])
        s.clock[replica] = ready + launch
        end = max(start + ns, ready + launch)
        s.stage_free[replica * STAGES_AT_MOST] = end
    s.slot_end[slot_index] = end
    s.unsampled[replica] = s.slot_waits[slot_index]
    if s.slot_masked[slot_index] > 0 and s.slot_waits[slot_index] == 0:
        end = make_masks(p, s, replica, slot)
    s.n_slots[replica] += 1
    s.log[entry * LOG + LOG_CHOSEN] = scheduled_ns
    s.log[entry * LOG + LOG_START] = start
    s.log[entry * LOG + LOG_END] = end


def make_masks(p: Program, s: ServingState, replica: int, slot: int) -> int:
    """Make the mask of a batch's grammars on the host, of which sampling waits; returns when the batch ends."""
    slot_index = p.slot_base[replica] + slot
    sampling = sampling_ns(p, s, replica, slot)
    s.clock[replica] += mask_ns(p, replica, s.slot_masked[slot_index])
    end = max(s.slot_end[slot_index], s.clock[replica] + sampling)
    s.slot_end[slot_index] = end
    s.stage_free[replica * STAGES_AT_MOST] = end
    s.log[s.entry_of[replica] * LOG + LOG_END] = end
    s.unsampled[replica] = 0
    return end


def log_step(p: Program, s: ServingState, replica: int, slot: int, entry: int, preempted: int) -> None:
    """Log a step, and its schedule if recorded."""
    log_row = entry * LOG
    count = s.slot_count[p.slot_base[replica] + slot]
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    tokens = 0
    for batch_index in range(first, first + count):
        tokens += s.batch_tokens[batch_index]
        if p.fleet_knobs[RECORD]:
            row = s.counters[ENTRIES] * 3
            s.schedule[row] = entry
            s.schedule[row + 1] = s.batch_item[batch_index]
            s.schedule[row + 2] = s.batch_tokens[batch_index]
            s.counters[ENTRIES] += 1
    s.log[log_row + LOG_REPLICA] = replica
    s.log[log_row + LOG_TOKENS] = tokens
    s.log[log_row + LOG_SEQS] = count
    s.log[log_row + LOG_RUNNING] = s.n_running[replica]
    s.log[log_row + LOG_WAITING] = s.waiting[replica]
    s.log[log_row + LOG_USED] = p.knobs[replica * KNOBS + BLOCKS] - 1 - s.n_free[replica]
    s.log[log_row + LOG_PREEMPTED] = preempted


def finish_oldest(p: Program, s: ServingState, replica: int) -> None:
    """Wait for the oldest batch, and take its output; an empty one has none."""
    slot = s.oldest[replica]
    slot_index = p.slot_base[replica] + slot
    s.clock[replica] = max(s.clock[replica], s.slot_end[slot_index])
    if s.slot_count[slot_index] > 0:
        take_output(p, s, replica, slot)
    s.oldest[replica] = (slot + 1) % p.knobs[replica * KNOBS + DEPTH]
    s.n_slots[replica] -= 1
    if s.sleeps[replica]:
        s.sleeps[replica] = 0
        s.clock[replica] += EMPTY_STEP_NS


def take_output(p: Program, s: ServingState, replica: int, slot: int) -> None:
    """Process a batch's output and deliver its tokens."""
    count = s.slot_count[p.slot_base[replica] + slot]
    store_batch(p, s, replica, slot, s.clock[replica])
    update(p, s, replica, slot)
    s.clock[replica] += host_ns(p, replica, BACK_NS, count)
    if s.unsampled[replica]:  # the newest batch needed these tokens
        newest = (slot + s.n_slots[replica] - 1) % p.knobs[replica * KNOBS + DEPTH]
        make_masks(p, s, replica, newest)
    deliver_tokens(p, s, replica, slot, s.clock[replica] + p.fleet_knobs[OUTPUT_NS])


def deliver_tokens(p: Program, s: ServingState, replica: int, slot: int, now: int) -> None:
    """Deliver tokens to clients at `now`; finished clients send their next request."""
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    usual = now - s.emitted[replica]
    alike = 0
    for batch_index in range(first, first + s.slot_count[p.slot_base[replica] + slot]):
        if s.batch_samples[batch_index] == 0:
            continue
        item = s.batch_item[batch_index]
        if p.knobs[replica * KNOBS + ROLE] == PREFILL:
            hand_over(p, s, item, now)
            continue
        if s.first[item] < 0:
            s.first[item] = now
        elif s.last[item] == s.emitted[replica]:
            alike += 1
        else:
            log_gap(s, now - s.last[item], 1)
        s.last[item] = now
        if s.status[item] == FINISHED:
            finish_request(p, s, item, now)
    if alike:
        log_gap(s, usual, alike)
    s.emitted[replica] = now


def log_gap(s: ServingState, ns: int, times: int) -> None:
    """Log the time between two tokens."""
    row = s.counters[PAIRS] * 2
    s.gaps[row] = ns
    s.gaps[row + 1] = times
    s.counters[PAIRS] += 1


def hand_over(p: Program, s: ServingState, item: int, now: int) -> None:
    """A prefill is done: send its keys and values to a decode replica."""
    source = s.replica[item]
    transfer(p, s, item, now)
    end_replica_request(p, s, source, now)


def finish_request(p: Program, s: ServingState, item: int, now: int) -> None:
    """A client received the last token of a request."""
    end_client_request(p, s, item, now)
    end_replica_request(p, s, s.replica[item], now)
