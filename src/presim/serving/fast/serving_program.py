"""The input of the loop: engines, requests, and tables of times as flat arrays.

Everything is a flat int64 array (float64 for tables of times), so that the same source runs compiled and uncompiled.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

# Lists if uncompiled, numpy int64 arrays if compiled; the annotations use lists.
Column: TypeAlias = list[int]
Table: TypeAlias = list[float]


class Program(NamedTuple):
    """The input of the loop."""

    fleet_knobs: Column  # [WHOLE]
    knobs: Column  # [replica * KNOBS + knob]
    base: Column  # [replica] first block; one more at the end
    row_base: Column  # [replica] first row of block tables; one more at the end
    batch_base: Column  # [replica] first place of its batches in flight; one more at the end
    slot_base: Column  # [replica] first batch in flight; one more at the end
    lora_base: Column  # [replica] first place of its adapters; one more at the end
    hash_base: Column  # [replica] first place of its table of hashes; one more at the end. Sizes are powers of two
    tier_base: Column  # [replica * 2 + tier] first node (a sentinel); the shared pool's, and one more at the end
    tier_hash_base: Column  # the same, for its hash table
    row_blocks: Column  # [0] blocks of a row
    apart_first: Column  # [replica] first row of `apart_groups`; one more at the end
    apart_groups: Column  # [row * APART_COLUMNS + …] groups of layers without a block table
    arrival: Column  # [request] ns
    prompt: Column  # [request] tokens
    output: Column  # [request] tokens, at least 1
    rank: Column  # [request] place under the policy "priority"
    stream: Column  # [request] id of the tokens after its segments
    segment_first: Column  # [request] one more at the end
    segments: Column
    child_first: Column  # [request] first of its follow-up requests in `children`; one more at the end
    children: Column
    delay: Column  # [request] ns between the end of the last request that it waits for and its arrival
    adapter: Column  # [request] LoRA adapter; 0: none
    grammar_ns: Column  # [request] to compile the grammar of its output; -1: it has none
    lifetimes: Column  # [replica * LIFETIMES + which] ns from a replica's start to its failure
    token_first: Column  # [table] first of its times by tokens; also of the launches
    token_ns: Table  # linear layers, norms, communication by tokens of a step
    prompt_launch_ns: Table  # host time to launch the kernels of a step with prompt tokens, by tokens
    decode_launch_ns: Table  # the same for a step that only decodes
    shared_first: Column  # [table]
    shared_ns: Table  # experts and their exchange by tokens of a rank, on average over those that step together
    head_first: Column  # [table]
    head_ns: Table  # logits and sampling by sequences
    lora_first: Column  # [table]
    lora_ns: Table  # adapters' products by tokens of a step that have an adapter
    prefill_log: Table  # [table * GRID * GRID + log2 q * GRID + log2 kv] log2 of ns of attention
    decode_log: Table  # [table * GRID * GRID + log2 sequences * GRID + log2 context] likewise
    costs: Table  # [table * COSTS]
