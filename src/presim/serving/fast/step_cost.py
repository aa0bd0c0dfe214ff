"""Device time of a step, from tables of times.

Linear layers depend on the step's tokens, logits on its sequences (on sampled rows if tokens are drafted), attention of
a prompt's chunk on its queries and keys, and attention of all decodes on their number and mean context. Attention is
interpolated between powers of two on logarithmic axes, where it is nearly linear.
"""

from __future__ import annotations

import math

from presim.serving.fast.serving_state import (
    COST,
    COSTS,
    DRAFT,
    GRID,
    KNOBS,
    LOG,
    LOG_CONTEXT,
    LOG_PREFILL,
    MASK_NS,
    MAX_SEQS,
    Program,
    ServingState,
    Table,
)


def between(table: Table, first: int, row_size: float, column_size: float) -> float:
    """Interpolate a table of logarithms over a grid of powers of two."""
    x = math.log2(max(row_size, 1.0))
    y = math.log2(max(column_size, 1.0))
    i = min(int(x), GRID - 2)
    j = min(int(y), GRID - 2)
    u = x - i
    v = y - j
    cell = first + i * GRID + j
    low = table[cell] * (1 - v) + table[cell + 1] * v
    high = table[cell + GRID] * (1 - v) + table[cell + GRID + 1] * v
    return float(2.0 ** (low * (1 - u) + high * u))


def device_ns(p: Program, s: ServingState, replica: int, slot: int, entry: int) -> int:
    """Time of one pipeline stage for a batch; also logs its prompt tokens and its context."""
    knob = replica * KNOBS
    cost = p.knobs[knob + COST]
    count = s.slot_count[p.slot_base[replica] + slot]
    first = p.batch_base[replica] + slot * p.knobs[knob + MAX_SEQS]
    tokens = 0
    decodes = 0
    context = 0
    prompt_tokens = 0
    attention = 0.0
    adapted = 0
    rows = 0
    longest = 1 + p.knobs[knob + DRAFT]
    for batch_index in range(first, first + count):
        item = s.batch_item[batch_index]
        new = s.batch_tokens[batch_index]
        tokens += new
        rows += max(s.batch_samples[batch_index], 1)
        adapted += new if p.adapter[item] > 0 else 0
        if new <= longest:
            decodes += 1
            context += s.computed[item]
        else:
            prompt_tokens += new
            attention += between(p.prefill_log, cost * GRID * GRID, float(new), float(s.computed[item]))
    if decodes > 0:
        attention += between(p.decode_log, cost * GRID * GRID, float(decodes), context / decodes)
    s.log[entry * LOG + LOG_PREFILL] = prompt_tokens
    s.log[entry * LOG + LOG_CONTEXT] = context
    linear = p.token_ns[p.token_first[cost] + tokens] + p.head_ns[p.head_first[cost] + rows]
    return int(linear + attention + p.lora_ns[p.lora_first[cost] + adapted])


def launch_ns(p: Program, replica: int, tokens: int, prompt_tokens: int) -> int:
    """Time of the host to launch a step's kernels; the device cannot be done before."""
    table_index = p.token_first[p.knobs[replica * KNOBS + COST]] + tokens
    return int(p.prompt_launch_ns[table_index] if prompt_tokens > 0 else p.decode_launch_ns[table_index])


def sampling_ns(p: Program, s: ServingState, replica: int, slot: int) -> int:
    """Time of a batch's logits and sampling, the last of its device time."""
    knob = replica * KNOBS
    first = p.batch_base[replica] + slot * p.knobs[knob + MAX_SEQS]
    rows = 0
    for batch_index in range(first, first + s.slot_count[p.slot_base[replica] + slot]):
        rows += max(s.batch_samples[batch_index], 1)
    return int(p.head_ns[p.head_first[p.knobs[knob + COST]] + rows])


def host_ns(p: Program, replica: int, kind: int, sequences: int) -> int:
    """Host time before a step (kind HOST_NS) or after it (BACK_NS)."""
    cost_index = p.knobs[replica * KNOBS + COST] * COSTS + kind
    return int(p.costs[cost_index] + p.costs[cost_index + 1] * sequences)


def mask_ns(p: Program, replica: int, rows: int) -> int:
    """Time of the host for rows of a mask by which grammars allow tokens."""
    return int(p.costs[p.knobs[replica * KNOBS + COST] * COSTS + MASK_NS] * rows)
