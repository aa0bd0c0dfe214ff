"""Device work of one step on one rank, as signatures: linear layers by tokens, attention by lengths."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Literal

from presim.serving.model import Experts, Model
from presim.serving.plan import DTYPES, Plan
from presim.serving.steps.experts import Routed
from presim.trace.signatures import (
    Attention,
    Elementwise,
    Gemm,
    Index,
    Normalization,
    Signature,
    Softmax,
)

_HALF = "bfloat16"


@dataclasses.dataclass(frozen=True)
class Reduce:
    """A collective over the attention ranks or the expert ranks, or a message to the next pipeline stage."""

    bytes: int
    over: Literal["tp", "experts", "stages"]
    kind: Literal["all_reduce", "all_to_all", "all_gather", "reduce_scatter", "send"] = "all_reduce"


Work = Signature | Reduce | Routed


def product(m: int, n: int, k: int, weights: str, *, quantises: bool = False) -> list[Work]:
    """A linear layer; ``quantises``: a separate kernel quantises its input, instead of the preceding kernel."""
    dtype = DTYPES[weights]
    if dtype == _HALF:
        return [Gemm(m, n, k, 1, _HALF, b_dtype="uint4" if weights == "int4" else "", layout="NT")]
    size = 1.0 if dtype.startswith("float8") else 0.5
    quantise = Elementwise(2 * m * k, int(m * k * size), m * k, _HALF, operator="quantise")
    scaling = "block" if weights in ("fp8-block", "fp4") else "outer"
    gemm = Gemm(m, n, k, 1, dtype, out_dtype=_HALF, layout="NT", scaling=scaling)
    return [quantise, gemm] if quantises else [gemm]


def _norm(tokens: int, width: int) -> Normalization:
    """A fused residual addition and RMS norm."""
    moved = 2 * tokens * width
    return Normalization(2 * moved, 2 * moved, tokens * width, _HALF, operator="rms_norm", row=width)


def _elementwise(read: int, written: int, operator: str) -> Elementwise:
    return Elementwise(read, written, max(read, written) // 2, _HALF, operator=operator)


def projections(model: Model, plan: Plan, tokens: int) -> list[Work]:
    """Projections and norms of one layer's attention, without the attention kernel."""
    heads = model.heads // plan.tp
    if model.latent is not None:
        return _latent_projections(model, plan, tokens)
    kv_heads = max(model.kv_heads // plan.tp, 1)
    width = ((2 if model.gated else 1) * heads + 2 * kv_heads) * model.head_dim
    size = 2 if plan.cache == "bf16" else 1
    rope = _elementwise(2 * tokens * width, 2 * tokens * heads * model.head_dim, "rotary")
    store = _elementwise(4 * tokens * kv_heads * model.head_dim, 2 * size * tokens * kv_heads * model.head_dim, "store")
    return [
        _norm(tokens, model.hidden),
        *product(tokens, width, model.hidden, plan.weights),
        *(_whole_norms(tokens, (heads + kv_heads) * model.head_dim) if model.whole_norms else ()),
        rope,
        store,
        *product(tokens, model.hidden, heads * model.head_dim, plan.weights, quantises=True),
    ]


def recurrent_projections(model: Model, plan: Plan, tokens: int) -> list[Work]:
    """A layer's gated delta net, without its state: projections, convolution, chunks of the delta rule, gated norm.

    The delta rule's kernels are priced by what they move: inputs and outputs of three passes over chunks.
    """
    nets = model.recurrent
    assert nets is not None
    wide, mixed = nets.value_heads * nets.value_dim // plan.tp, nets.mixed // plan.tp
    moved = 2 * tokens * (mixed + wide)
    return [
        _norm(tokens, model.hidden),
        *product(tokens, mixed + wide, model.hidden, plan.weights),
        Gemm(tokens, max(2 * nets.value_heads // plan.tp, 1), model.hidden, 1, _HALF, layout="NT"),
        _elementwise(2 * tokens * mixed, 2 * tokens * mixed, "causal_conv1d"),
        *[_elementwise(moved, moved, "chunks of the delta rule")] * 3,
        _elementwise(4 * tokens * wide, 2 * tokens * wide, "gated norm"),
        *product(tokens, model.hidden, wide, plan.weights, quantises=True),
    ]


def states(model: Model, plan: Plan, sequences: int) -> list[Work]:
    """Reading and writing the states of a layer's sequences."""
    if model.recurrent is None:
        return []
    moved = sequences * model.recurrent.state_bytes // plan.tp
    return [Elementwise(moved, moved, moved // 4, "float32", operator="states of the delta rule")]


def _whole_norms(tokens: int, width: int) -> list[Work]:
    """Query and key norms over the heads of all ranks: sums of squares, all-reduce, scaling."""
    moved = 2 * tokens * width
    sums = _elementwise(moved, 8 * tokens, "sums of squares")
    return [sums, Reduce(8 * tokens, "tp"), _elementwise(moved, moved, "scale")]


def _latent_projections(model: Model, plan: Plan, tokens: int) -> list[Work]:
    """Projections of DeepSeek's latent attention, with absorbed up-projections, as in decoding."""
    latent, heads = model.latent, model.heads // plan.tp
    assert latent is not None
    down = latent.query_rank + latent.rank + latent.rope
    works: list[Work] = [_norm(tokens, model.hidden), *product(tokens, down, model.hidden, plan.weights)]
    works += [_norm(tokens, latent.query_rank or model.hidden)]
    works += product(tokens, heads * (latent.nope + latent.rope), latent.query_rank or model.hidden, plan.weights)
    works += [Gemm(tokens, latent.rank, latent.nope, heads, _HALF)]
    works += [_elementwise(4 * tokens * heads * latent.rope, 2 * tokens * heads * latent.rope, "rotary")]
    works += [Gemm(tokens, latent.value, latent.rank, heads, _HALF), *_indexer_projections(model, plan, tokens)]
    return [*works, *product(tokens, model.hidden, heads * latent.value, plan.weights, quantises=True)]


def _indexer_projections(model: Model, plan: Plan, tokens: int) -> list[Work]:
    """Queries, the key and the heads' weights of the indexer, which every rank computes whole, in 8 bits."""
    indexer, latent = model.indexer, model.latent
    if indexer is None:
        return []
    wide = indexer.heads * indexer.dim
    return [
        *product(tokens, wide, latent.query_rank if latent and latent.query_rank else model.hidden, plan.weights),
        Gemm(tokens, indexer.dim, model.hidden, 1, _HALF, layout="NT"),
        Gemm(tokens, indexer.heads, model.hidden, 1, _HALF, layout="NT"),
        _norm(tokens, indexer.dim),
        _elementwise(2 * tokens * (wide + indexer.dim), 2 * tokens * (wide + indexer.dim), "rotary"),
        _elementwise(2 * tokens * wide, tokens * wide, "quantise"),
        _elementwise(2 * tokens * indexer.dim, tokens * indexer.dim, "store"),
    ]


def scoring(model: Model, batch: int, queries: int, keys: int) -> list[Work]:
    """The indexer's scores of all keys, half of them where all are new, and the choice of the highest ones."""
    indexer = model.indexer
    if indexer is None:
        return []
    seen = max(keys - queries // 2, 1)
    scores = 4 * batch * queries * seen
    return [
        Gemm(queries * indexer.heads, seen, indexer.dim, batch, DTYPES["fp8"], out_dtype=_HALF, layout="NT"),
        Softmax(scores, 4 * batch * queries * indexer.keys, scores // 4, "float32", operator="topk", row=seen),
    ]


def feed_forward(model: Model, plan: Plan, tokens: int, width: int, over: int) -> list[Work]:
    """A gated feed-forward split over ``over`` ranks."""
    local = max(width // over, 1)
    return [
        *product(tokens, 2 * local, model.hidden, plan.weights),
        _elementwise(4 * tokens * local, 2 * tokens * local, "silu_and_mul"),
        *product(tokens, model.hidden, local, plan.weights),
    ]


def experts(model: Model, of: Experts, plan: Plan, tokens: int) -> list[Work]:
    """A layer of experts; tokens of all data-parallel ranks are spread evenly over the ranks' experts."""
    ranks = plan.tp * plan.dp
    logits = 4 * tokens * of.count
    whole = Routed(tokens * plan.dp, model.hidden, of.width, of.chosen, of.count, ranks, plan.of_experts)
    cut = dataclasses.replace(whole, width=max(of.width // ranks, 1), ranks=1)
    works: list[Work] = [
        Gemm(tokens, of.count, model.hidden, 1, _HALF, layout="NT"),
        Softmax(logits, logits, tokens * of.count, "float32", operator="topk", row=of.count),
        whole if plan.ep else cut,
    ]
    if of.shared_width:
        works += feed_forward(model, plan, tokens, of.shared_width, plan.tp)
    return works


def layer(model: Model, plan: Plan, tokens: int, *, dense: bool, recurrent: bool = False) -> list[Work]:
    """Work of a layer, except its attention kernel, or its gated delta net's states."""
    moved = 2 * tokens * model.hidden
    works = (recurrent_projections if recurrent else projections)(model, plan, tokens)
    works += [Reduce(moved, "tp"), _norm(tokens, model.hidden)]
    if dense or model.experts is None:
        return [*works, *feed_forward(model, plan, tokens, model.width, plan.tp), Reduce(moved, "tp")]
    works += experts(model, model.experts, plan, tokens)
    return [*works, *_exchange(model, model.experts, plan, tokens)]


def _exchange(model: Model, of: Experts, plan: Plan, tokens: int) -> list[Work]:
    """Communication that brings tokens to the experts and back.

    vLLM gathers the tokens of all data-parallel ranks and scatters the sums (its `allgather_reducescatter`); with
    tensor parallelism the ranks of a group gather their parts again. With expert parallelism, SGLang and TensorRT-LLM
    send a token only to the ranks of its experts.
    """
    moved = 2 * tokens * model.hidden
    ranks = plan.tp * plan.dp
    if plan.dp == 1:
        return [Reduce(moved, "experts")]
    if plan.kernels == "vllm":
        both = [Reduce(moved * plan.dp, "experts", "all_gather"), Reduce(moved * plan.dp, "experts", "reduce_scatter")]
        return [*both, Reduce(moved, "tp", "all_gather")]
    if not plan.ep:
        return [Reduce(moved * plan.dp, "experts")]
    reached = ranks * (1 - (1 - 1 / ranks) ** of.chosen)
    sent = int(moved * reached)
    dispatched = sent if plan.of_experts == "bf16" else sent // 2
    return [Reduce(dispatched, "experts", "all_to_all"), Reduce(sent, "experts", "all_to_all")]


def head(model: Model, plan: Plan, sequences: int) -> list[Work]:
    """Final norm, logits, and sampling."""
    local = -(-model.vocabulary // plan.tp)
    logits = 4 * sequences * model.vocabulary
    works: list[Work] = [
        _norm(sequences, model.hidden),
        Gemm(sequences, local, model.hidden, 1, _HALF, layout="NT"),
        Reduce(2 * sequences * model.vocabulary, "tp"),
    ]
    cast = _elementwise(logits // 2, logits, "to float32")
    return [*works, cast, Softmax(logits, logits, logits // 4, "float32", operator="sample", row=model.vocabulary)]


def embedding(model: Model, plan: Plan, tokens: int) -> list[Work]:
    """Embedding lookup of a step's tokens."""
    moved = 2 * tokens * model.hidden
    return [Index(moved, moved, tokens * model.hidden, _HALF, operator="embedding"), Reduce(moved, "tp")]


def to_next_stage(model: Model, plan: Plan, tokens: int) -> list[Work]:
    """Hidden states and residuals to the next stage: each rank sends its part, the next stage's ranks gather them.

    As vLLM's `GroupCoordinator.send_tensor_dict` with an all-gather group; both tensors are of 16 bits.
    """
    if plan.pp == 1:
        return []
    moved = 2 * 2 * tokens * model.hidden
    return [Reduce(moved // plan.tp, "stages", "send"), Reduce(moved, "tp", "all_gather")]


def attention(
    model: Model, plan: Plan, batch: int, queries: int, keys: int, window: int, backend: str, *, decode: bool
) -> Attention:
    """One layer's attention for equal sequences; with drafted tokens, a decode has several queries."""
    heads = model.heads // plan.tp
    dtype = "float8_e4m3fn" if plan.cache != "bf16" and decode else _HALF
    keys = max(keys, queries)
    if model.indexer is not None and decode:
        keys = min(keys, max(model.indexer.keys, queries))
    if model.latent is not None:
        latent = model.latent
        if not decode:
            dims = (heads, heads, latent.nope + latent.rope, latent.value)
        else:
            dims = (heads, 1, latent.rank + latent.rope, latent.rank)
    else:
        dims = (heads, max(model.kv_heads // plan.tp, 1), model.head_dim, model.head_dim)
    return Attention(
        "forward",
        batch,
        dims[0],
        dims[1],
        queries,
        keys,
        dims[2],
        dims[3],
        True,
        dtype,
        backend,
        window=window,
        paged=True,
    )


def stage(model: Model, plan: Plan, tokens: int) -> list[tuple[Work, int]]:
    """Work of a pipeline stage except attention kernels and logits, each with its number."""
    dense, sparse = stage_layers(model, plan)
    works: Counter[Work] = Counter([*embedding(model, plan, tokens), *to_next_stage(model, plan, tokens)])
    for is_dense, count in ((True, dense), (False, sparse)):
        full = full_layers(model, count)
        for recurrent, times in ((False, full), (True, count - full)):
            for work in layer(model, plan, tokens, dense=is_dense, recurrent=recurrent) if times else ():
                works[work] += times
    return [(work, count) for work, count in works.items() if count]


def full_layers(model: Model, count: int) -> int:
    """How many of so many layers have attention."""
    return count if model.recurrent is None else -(-count // model.recurrent.every)


def stage_layers(model: Model, plan: Plan) -> tuple[int, int]:
    """(dense layers, expert layers) of the slowest pipeline stage."""
    count = math.ceil(model.layers / plan.pp)
    if model.experts is None:
        return count, 0
    dense = min(model.experts.dense_layers, count) if plan.pp == 1 else 0
    return dense, count - dense
