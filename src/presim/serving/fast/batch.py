"""The batch of a step: who is in it, with how many tokens, of which some are sampled."""

from __future__ import annotations

from presim.serving.fast.state import (
    ASYNC,
    KNOBS,
    MAX_SEQS,
    PREFILL,
    ROLE,
    STAGES,
    Program,
    State,
)


def add_to_batch(p: Program, s: State, replica: int, slot: int, item: int, tokens: int, padded: int) -> None:
    """Append a request to a batch."""
    at = p.slot_base[replica] + slot
    place = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS] + s.slot_count[at]
    s.batch_item[place] = item
    s.batch_tokens[place] = tokens
    s.batch_padded[place] = padded
    s.slot_count[at] += 1


def drop_from_batch(p: Program, s: State, replica: int, slot: int, item: int) -> int:
    """Take a request out of a batch; returns the tokens it had there, 0 where it was not in it."""
    at = p.slot_base[replica] + slot
    first = p.batch_base[replica] + slot * p.knobs[replica * KNOBS + MAX_SEQS]
    dropped = 0
    for place in range(first, first + s.slot_count[at]):
        if dropped:
            s.batch_item[place - 1] = s.batch_item[place]
            s.batch_tokens[place - 1] = s.batch_tokens[place]
            s.batch_padded[place - 1] = s.batch_padded[place]
        elif s.batch_item[place] == item:
            dropped = s.batch_tokens[place]
    if dropped:
        s.slot_count[at] -= 1
    return dropped


def after_schedule(p: Program, s: State, replica: int, slot: int) -> None:
    """Count the batch's tokens as computed, so that the next step can be scheduled before this one is back."""
    knob = replica * KNOBS
    at = p.slot_base[replica] + slot
    first = p.batch_base[replica] + slot * p.knobs[knob + MAX_SEQS]
    s.slot_masked[at] = 0
    s.slot_waits[at] = 0
    for place in range(first, first + s.slot_count[at]):
        item = s.batch_item[place]
        s.computed[item] += s.batch_tokens[place]
        s.in_flight[item] += s.batch_tokens[place]
        samples = max(s.computed[item] - s.tokens[item] - s.placeholders[item] + 1, 0)
        s.batch_samples[place] = samples
        s.decodes[item] = 1 if samples else 0
        if samples and p.grammar_ns[item] >= 0:
            s.slot_masked[at] += samples
            s.slot_waits[at] = 1 if s.placeholders[item] > 0 else s.slot_waits[at]
        if samples and p.knobs[knob + ASYNC]:
            s.placeholders[item] += samples
            s.eligible[item] = s.step[replica] + p.knobs[knob + STAGES]


def tokens_of(p: Program, s: State, replica: int, item: int) -> int:
    """Tokens of a request when a replica is done with it."""
    if p.knobs[replica * KNOBS + ROLE] == PREFILL:
        return p.prompt[item] + s.kept[item] + 1
    return p.prompt[item] + p.output[item]
