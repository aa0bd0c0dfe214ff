"""The pool of pages of an engine: vLLM's groups; SGLang's pools of tokens and states; all layers alike in TensorRT-LLM.

SGLang (0.5.23) has a pool of tokens for layers that keep all, another for windows with 0.8 times as many, and one for
states, which gets 0.9 of what the tokens get (`swa_full_tokens_ratio`, `mamba_full_memory_ratio`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from presim.composition.models.description import Model
from presim.hardware import Gpu
from presim.serving.drafting import drafter
from presim.serving.engines.engine import Apart
from presim.serving.kv.kv_groups import KvGroup, Pool, Spec, pool
from presim.serving.kv.kv_layers import KvLayer, every_layer, kv_layers
from presim.serving.serving_plan import ServingPlan

SGLANG_WINDOWS = 0.8  # tokens of layers with a window, of those that all layers keep
SGLANG_STATES = 0.9  # bytes of states, of those for tokens
_SGLANG_STATES_EACH = 3  # states that SGLang has room for, of each running request (with its radix cache)


def pool_of(model: Model, plan: ServingPlan, gpu: Gpu) -> Pool:
    """The pool of the plan's engine, on the fullest pipeline stage."""
    drafted_tokens = plan.drafting.tokens if plan.drafting and plan.kernels == "vllm" else 0
    layers = kv_layers(model, plan.cache, gpu.architecture, plan.tp, drafted_tokens)
    proposes = drafter(model, plan.drafting) if plan.drafting else None
    last = kv_layers(proposes, plan.cache, gpu.architecture, plan.tp) if proposes else ()
    if plan.kernels != "vllm":
        return _of_tokens([*layers, *last], plan)
    batches = plan.pp + (1 if plan.async_scheduling else 0)
    return pool(
        _of_rank(layers, plan),
        plan.block_size * plan.dcp,
        stages=plan.pp,
        last=_of_rank(last, plan),
        in_flight_tokens=batches * plan.max_num_batched_tokens,
        resident_states=_decoding_states(plan) + (1 if plan.prefix_caching else 0),
    )


def _of_rank(layers: Sequence[KvLayer], plan: ServingPlan) -> list[KvLayer]:
    """The layers with the bytes of a token that a rank keeps on average: ranks keep tokens in turn, and no token twice.

    So a page of a rank stands for as many times its tokens (vLLM 0.33, `dcp_kv_cache_interleave_size`).
    """
    return [dataclasses.replace(layer, token_bytes=-(-layer.token_bytes // plan.dcp)) for layer in layers]


def _decoding_states(plan: ServingPlan) -> int:
    """States of a sequence that decodes: its own, and one for each drafted token."""
    return 1 + (plan.drafting.tokens if plan.drafting else 0)


def _of_tokens(layers: Sequence[KvLayer], plan: ServingPlan) -> Pool:
    """A pool of tokens in one group; windows count as SGLang makes room for them, or as all tokens."""
    share = SGLANG_WINDOWS if plan.kernels == "sglang" else 1.0
    token_bytes = sum(
        layer.token_bytes * layer.count * (share if layer.kind in ("sliding", "chunked") else 1.0) for layer in layers
    )
    stage_bytes = math.ceil(token_bytes / plan.pp) * plan.block_size
    return Pool((KvGroup((Spec("full", plan.block_size, stage_bytes),), (0,)),), stage_bytes, 0, 0)


def state_bytes(model: Model, plan: ServingPlan, gpu: Gpu, free_bytes: int) -> int:
    """Bytes for states beside the pool, of those free for both; 0 where states are pages of it."""
    layers = kv_layers(model, plan.cache, gpu.architecture, plan.tp)
    of_sequence = -(-sum(layer.state_bytes * layer.count for layer in layers) // plan.pp)
    if plan.kernels == "vllm" or not of_sequence:
        return 0
    if plan.kernels == "sglang":
        share_bytes = int(max(free_bytes, 0) * SGLANG_STATES / (1 + SGLANG_STATES))
        return min(share_bytes, plan.max_num_seqs * _SGLANG_STATES_EACH * of_sequence)
    return plan.max_num_seqs * of_sequence


def apart(pages: Pool, plan: ServingPlan) -> tuple[Apart, ...]:
    """The groups beside the one by which prefixes are found, for the scheduler's loop."""
    anchor = next((group for group in pages.groups if group.spec.keeps_all), pages.groups[0])
    counts: dict[Apart, int] = {}
    for group in pages.groups:
        if group is not anchor:
            alike = _apart(group.spec, pages, plan)
            counts[alike] = counts.get(alike, 0) + 1
    return tuple(dataclasses.replace(alike, groups=count) for alike, count in counts.items())


def _apart(spec: Spec, pages: Pool, plan: ServingPlan) -> Apart:
    flying, size = pages.in_flight_tokens, spec.block_tokens
    if spec.kind == "state":
        return Apart("state", 1, size, _decoding_states(plan), pages.resident_states)
    if spec.kind == "sliding":
        return Apart("sliding", 1, size, spec.window, -(-(spec.window - 1 + flying) // size) + 1)
    if spec.kind == "chunked":
        return Apart("chunked", 1, size, spec.window, -(-(spec.window + flying) // size))
    return Apart("full", 1, size)


def has_states(model: Model, plan: ServingPlan, gpu: Gpu) -> bool:
    """Whether some layers keep a state of each sequence."""
    return any(layer.kind == "state" for layer in every_layer(kv_layers(model, plan.cache, gpu.architecture, plan.tp)))
