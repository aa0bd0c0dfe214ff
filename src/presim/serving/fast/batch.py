"""The batch of a step: who is in it, with how many tokens, of which some are sampled."""

from __future__ import annotations

from presim.serving.fast.serving_state import (
    ASYNC,
    KNOBS,
    MAX_SEQS,
    PREFILL,
    ROLE,
    STAGES,
    Program,
    ServingState,
)


def add_to_batch(p: Program, s: ServingState, replica: int, slot: int, item: int, tokens: int, padded: int) -> None:
    """Append a request to a batch."""
    slot_index = p.slot_base[replica] + slot
    batch_index = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS] + s.slot_count[slot_index]
    s.batch_item[batch_index] = item
    s.batch_tokens[batch_index] = tokens
    s.batch_padded[batch_index] = padded
    s.slot_count[slot_index] += 1


def drop_from_batch(p: Program, s: ServingState, replica: int, slot: int, item: int) -> int:
    """Take a request out of a batch; returns the tokens it had there, 0 where it was not in it."""
    slot_index = p.slot_base[replica] + slot
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    dropped = 0
    for batch_index in range(first, first + s.slot_count[slot_index]):
        if dropped:
            s.batch_item[batch_index - 1] = s.batch_item[batch_index]
            s.batch_tokens[batch_index - 1] = s.batch_tokens[batch_index]
            s.batch_padded[batch_index - 1] = s.batch_padded[batch_index]
        elif s.batch_item[batch_index] == item:
            dropped = s.batch_tokens[batch_index]
    if dropped:
        s.slot_count[slot_index] -= 1
    return dropped


def after_schedule(p: Program, s: ServingState, replica: int, slot: int) -> None:
    """Count the batch's tokens as computed, so that the next step can be scheduled before this one is back."""
    knob = replica * KNOBS
    slot_index = p.slot_base[replica] + slot
    first = p.batch_base[replica] + slot * p.knobs[knob + MAX_SEQS]
    s.slot_masked[slot_index] = 0
    s.slot_waits[slot_index] = 0
    for batch_index in range(first, first + s.slot_count[slot_index]):
        item = s.batch_item[batch_index]
        s.computed[item] += s.batch_tokens[batch_index]
        s.in_flight[item] += s.batch_tokens[batch_index]
        samples = max(s.computed[item] - s.tokens[item] - s.placeholders[item] + 1, 0)
        s.batch_samples[batch_index] = samples
        s.decodes[item] = 1 if samples else 0
        if samples and p.grammar_ns[item] >= 0:
            s.slot_masked[slot_index] += samples
            s.slot_waits[slot_index] = 1 if s.placeholders[item] > 0 else s.slot_waits[slot_index]
        if samples and p.knobs[knob + ASYNC]:
            s.placeholders[item] += samples
            s.eligible[item] = s.step[replica] + p.knobs[knob + STAGES]


def final_tokens(p: Program, s: ServingState, replica: int, item: int) -> int:
    """Tokens of a request when a replica is done with it."""
    if p.knobs[replica * KNOBS + ROLE] == PREFILL:
        return p.prompt[item] + s.kept_tokens[item] + 1
    return p.prompt[item] + p.output[item]
