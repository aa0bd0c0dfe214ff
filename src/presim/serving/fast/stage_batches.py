"""Batches in pipeline stages, and what an engine does while its scheduler has nothing for the first stage.

A batch passes the stages one after the other. A decode starts on the first stage when its last token has been sampled
on the last one.

vLLM schedules the decodes of a request STAGES calls of its scheduler apart, so that the batches of a full pipeline
alternate. With fewer requests some calls schedule nothing. vLLM's busy loop then hands over an empty batch, which takes
a place in flight, sleeps, and asks its scheduler again (vLLM 0.33, v1/engine/core.py: `step_with_batch_queue` and
`_process_engine_step`).
"""

from __future__ import annotations

from presim.serving.fast.serving_state import (
    DEPTH,
    KNOBS,
    MAX_SEQS,
    STAGES,
    STAGES_AT_MOST,
    Program,
    ServingState,
)

EMPTY_STEP_NS = 1_000_000  # `time.sleep(0.001)` of vLLM's `_process_engine_step` after a step without tokens


def through_stages(p: Program, s: ServingState, replica: int, slot: int, ready: int, ns: int) -> tuple[int, int]:
    """Start and end of a batch that runs for so long on each pipeline stage; each stage launches its own kernels."""
    first_stage = replica * STAGES_AT_MOST
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    behind = first + s.slot_count[p.slot_base[replica] + slot]
    start = max(ready, s.stage_free[first_stage])
    for index in range(first, behind):
        item = s.batch_item[index]
        if s.placeholders[item] > s.batch_samples[index]:  # a token before this step's is still in flight
            start = max(start, s.sampled_at[item])
    end = start
    for stage in range(first_stage, first_stage + p.knobs[replica * KNOBS + STAGES]):
        end = max(end, s.stage_free[stage]) + ns
        s.stage_free[stage] = end
    for index in range(first, behind):
        if s.batch_samples[index] > 0:
            s.sampled_at[s.batch_item[index]] = end
    return start, end


def can_schedule_later(p: Program, s: ServingState, replica: int) -> bool:
    """Whether a later call of the scheduler can have a batch: a decode's turn comes, or one in flight comes back."""
    if p.knobs[replica * KNOBS + STAGES] == 1:
        return False  # the oldest batch is waited for at once
    first = p.row_base[replica]
    for row in range(first, first + s.n_running[replica]):
        if s.step[replica] < s.eligible[s.running[row]]:
            return True
    in_flight = 0
    for age in range(s.n_slots[replica]):
        in_flight += s.slot_count[slot_of(p, s, replica, age)]
    return in_flight > 0


def slot_of(p: Program, s: ServingState, replica: int, age: int) -> int:
    """The place of a batch in flight in the columns of batches; ``age``: 0 for the oldest."""
    return p.slot_base[replica] + (s.oldest[replica] + age) % p.knobs[replica * KNOBS + DEPTH]


def add_empty_batch(p: Program, s: ServingState, replica: int) -> None:
    """Hand over a batch of no request. It comes back behind the batches in flight; the engine sleeps meanwhile."""
    count = s.n_slots[replica]
    end = s.clock[replica]
    if count > 0:
        end = max(end, s.slot_end[slot_of(p, s, replica, count - 1)])
    s.slot_end[slot_of(p, s, replica, count)] = end
    s.n_slots[replica] = count + 1
    if count + 1 < p.knobs[replica * KNOBS + DEPTH]:
        s.clock[replica] += EMPTY_STEP_NS
    else:  # the oldest batch is waited for first
        s.sleeps[replica] = 1
