"""Work of layers that keep a state for each sequence: products of their projections, scans by chunks, state traffic.

Scans over a prompt are computed by chunks of tokens: products within a chunk, and of a chunk with the state. Kernels
between products are priced by what they move.
"""

from __future__ import annotations

import functools
from typing import Literal

from presim.composition.models.decoder_layers import DeltaNet, LinearAttention, Mamba, Recurrent, ShortConvolution
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.step_work import HALF, MixerTypes, Work, elementwise, product
from presim.trace.signatures import Elementwise, Gemm

_CHUNK = 256  # tokens: of Mamba 2's kernels (`chunk_size` of published configs) and of lightning attention


@functools.singledispatch
def projections(mixer: Recurrent, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes) -> list[Work]:
    """Work of a mixer by tokens, without reading and writing its states."""
    raise AssertionError(f"{type(mixer).__name__} has no work; each kind of layer is registered here")


@projections.register
def _delta_net(mixer: DeltaNet, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes) -> list[Work]:
    """Projections, convolution, three passes over chunks of the delta rule with inputs and outputs, gated norm."""
    wide, mixed = mixer.value_heads * mixer.value_dim // plan.tp, mixer.mixed // plan.tp
    heads = max(mixer.value_heads // plan.tp, 1)
    moved_bytes = 2 * tokens * (mixed + wide)
    if mixer.gate_ranks:
        works = product(tokens, mixed, hidden, types.inputs)
        works += [Gemm(tokens, sum(mixer.gate_ranks) + heads, hidden, 1, HALF, layout="NT")]
        works += [Gemm(tokens, wide, rank, 1, HALF, layout="NT") for rank in mixer.gate_ranks]
    else:
        works = product(tokens, mixed + wide, hidden, types.inputs)
        works += [Gemm(tokens, max(2 * mixer.value_heads // plan.tp, 1), hidden, 1, HALF, layout="NT")]
    return [
        *works,
        elementwise(2 * tokens * mixed, 2 * tokens * mixed, "causal_conv1d"),
        *[elementwise(moved_bytes, moved_bytes, "chunks of the delta rule")] * 3,
        elementwise(4 * tokens * wide, 2 * tokens * wide, "gated norm"),
        *product(tokens, hidden, wide, types.output, quantises=True),
    ]


@projections.register
def _mamba(mixer: Mamba, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes) -> list[Work]:
    return _mamba_2(mixer, hidden, plan, tokens, types) if mixer.heads else _mamba_1(mixer, hidden, plan, tokens, types)


def _mamba_2(mixer: Mamba, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes) -> list[Work]:
    inner, heads = mixer.inner // plan.tp, max(mixer.heads // plan.tp, 1)
    groups = max(mixer.groups // plan.tp, 1)
    mixed = inner + 2 * groups * mixer.state
    return [
        *product(tokens, inner + mixed + heads, hidden, types.inputs),
        elementwise(2 * tokens * mixed, 2 * tokens * mixed, "causal_conv1d"),
        *_chunks(tokens, heads, groups, mixer.state, inner // heads),
        elementwise(4 * tokens * inner, 2 * tokens * inner, "gated norm"),
        *product(tokens, hidden, inner, types.output, quantises=True),
    ]


def _chunks(tokens: int, heads: int, groups: int, keys: int, values: int) -> list[Work]:
    """A scan by chunks: scores of a chunk by group, outputs within it, its state, and outputs from former states."""
    chunk = min(tokens, _CHUNK)
    count = -(-tokens // chunk)
    return [
        Gemm(chunk, chunk, keys, groups * count, HALF),
        Gemm(chunk, values, chunk, heads * count, HALF),
        Gemm(keys, values, chunk, heads * count, HALF),
        Gemm(chunk, values, keys, heads * count, HALF),
        elementwise(2 * tokens * heads * values, 2 * tokens * heads * values, "sums of chunks"),
    ]


def _mamba_1(mixer: Mamba, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes) -> list[Work]:
    inner = mixer.inner // plan.tp
    scan = Elementwise(
        8 * tokens * inner, 2 * tokens * inner, tokens * inner * mixer.state, HALF, operator="selective scan"
    )
    return [
        *product(tokens, 2 * inner, hidden, types.inputs),
        elementwise(2 * tokens * inner, 2 * tokens * inner, "causal_conv1d"),
        *product(tokens, mixer.step_rank + 2 * mixer.state, inner, types.inputs),
        *product(tokens, inner, mixer.step_rank, types.inputs),
        scan,
        *product(tokens, hidden, inner, types.output, quantises=True),
    ]


@projections.register
def _short_convolution(
    mixer: ShortConvolution, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes
) -> list[Work]:
    inner = mixer.inner // plan.tp
    return [
        *product(tokens, 3 * inner, hidden, types.inputs),
        elementwise(6 * tokens * inner, 2 * tokens * inner, "gated convolution"),
        *product(tokens, hidden, inner, types.output, quantises=True),
    ]


@projections.register
def _linear_attention(
    mixer: LinearAttention, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes
) -> list[Work]:
    heads = max(mixer.heads // plan.tp, 1)
    wide = heads * mixer.head_dim
    return [
        *product(tokens, 3 * wide, hidden, types.inputs),
        *_chunks(tokens, heads, heads, mixer.head_dim, mixer.head_dim),
        *product(tokens, wide, hidden, types.inputs),
        elementwise(4 * tokens * wide, 2 * tokens * wide, "gated norm"),
        *product(tokens, hidden, wide, types.output, quantises=True),
    ]


def states(mixer: Recurrent, state_type: Literal["bf16", "float32"], plan: ServingPlan, sequences: int) -> list[Work]:
    """Reading and writing the states of a layer's sequences."""
    size = 4 if state_type == "float32" else 2
    moved_bytes = sequences * mixer.state_elements * size // plan.tp
    if not moved_bytes:
        return []
    dtype = "float32" if size == 4 else HALF
    return [Elementwise(moved_bytes, moved_bytes, moved_bytes // size, dtype, operator="states")]
