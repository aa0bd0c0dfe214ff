"""Work of what mixes the tokens of a layer, on one rank: projections by tokens, attention by lengths."""

from __future__ import annotations

import functools

from presim.composition.models.decoder_layers import Attention, Compressed, Latent, Mixer
from presim.serving.serving_plan import DTYPES, ServingPlan
from presim.serving.steps import recurrent
from presim.serving.steps.step_work import HALF, MixerTypes, Reduce, Work, elementwise, norm, product
from presim.trace.signatures import Attention as AttentionKernel
from presim.trace.signatures import Gemm, Softmax


@functools.singledispatch
def projections(mixer: Mixer, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes) -> list[Work]:
    """Products and norms of a mixer beside its attention kernel or its states. ``types``: of their weights."""
    return recurrent.projections(mixer, hidden, plan, tokens, types)  # type: ignore[arg-type]


@projections.register
def _attention(mixer: Attention, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes) -> list[Work]:
    heads, kv_heads = mixer.heads // plan.tp, max(mixer.kv_heads // plan.tp, 1)
    width = heads * mixer.head_dim + (heads * mixer.value_dim if mixer.gated else 0)
    stored_elements = 0 if mixer.reuses_cache else kv_heads * (mixer.head_dim + mixer.value_dim)
    if not mixer.reuses_cache:
        width += kv_heads * (mixer.head_dim + (mixer.value_dim if mixer.projects_values else 0))
    size = 2 if plan.cache == "bf16" else 1
    works = product(tokens, width, hidden, types.inputs)
    if mixer.whole_norms:
        works += _whole_norms(tokens, (heads + kv_heads) * mixer.head_dim)
    works += [elementwise(2 * tokens * width, 2 * tokens * heads * mixer.head_dim, "rotary")]
    if stored_elements:
        works += [elementwise(2 * tokens * stored_elements, size * tokens * stored_elements, "store")]
    if mixer.indexer is not None:
        wide = mixer.indexer.heads * mixer.indexer.dim
        works += [
            *product(tokens, wide, hidden, types.inputs),
            *_indexer(wide, mixer.indexer.dim, mixer.indexer.heads, hidden, tokens),
        ]
    return [*works, *product(tokens, hidden, heads * mixer.value_dim, types.output, quantises=True)]


def _whole_norms(tokens: int, width: int) -> list[Work]:
    """Query and key norms over the heads of all ranks: sums of squares, all-reduce, scaling."""
    moved_bytes = 2 * tokens * width
    sums = elementwise(moved_bytes, 8 * tokens, "sums of squares")
    return [sums, Reduce(8 * tokens, "tp"), elementwise(moved_bytes, moved_bytes, "scale")]


@projections.register
def _latent(mixer: Latent, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes) -> list[Work]:
    """Projections of DeepSeek's latent attention, with absorbed up-projections, as in decoding."""
    heads = mixer.heads // plan.tp
    query_in = mixer.query_rank or hidden
    works = product(tokens, mixer.query_rank + mixer.rank + mixer.rope, hidden, types.inputs)
    works += [norm(tokens, query_in)]
    works += product(tokens, heads * (mixer.nope + mixer.rope), query_in, types.inputs)
    rotary = elementwise(4 * tokens * heads * mixer.rope, 2 * tokens * heads * mixer.rope, "rotary")
    if mixer.expanded:
        stored_bytes = 4 * tokens * heads * (mixer.nope + mixer.rope)
        works += product(tokens, heads * (mixer.nope + mixer.value), mixer.rank, types.inputs)
        works += [rotary, elementwise(stored_bytes, stored_bytes, "store")]
    else:
        works += [Gemm(tokens, mixer.rank, mixer.nope, heads, HALF), rotary]
        works += [Gemm(tokens, mixer.value, mixer.rank, heads, HALF)]
    if mixer.indexer is not None:
        wide, dim = mixer.indexer.heads * mixer.indexer.dim, mixer.indexer.dim
        works += [
            *product(tokens, wide, query_in, types.inputs),
            *_indexer(wide, dim, mixer.indexer.heads, hidden, tokens),
        ]
    return [*works, *product(tokens, hidden, heads * mixer.value, types.output, quantises=True)]


def _indexer(wide: int, dim: int, heads: int, hidden: int, tokens: int) -> list[Work]:
    """The key and the heads' weights of the indexer, which every rank computes whole, in 8 bits."""
    return [
        Gemm(tokens, dim, hidden, 1, HALF, layout="NT"),
        Gemm(tokens, heads, hidden, 1, HALF, layout="NT"),
        norm(tokens, dim),
        elementwise(2 * tokens * (wide + dim), 2 * tokens * (wide + dim), "rotary"),
        elementwise(2 * tokens * wide, tokens * wide, "quantise"),
        elementwise(2 * tokens * dim, tokens * dim, "store"),
    ]


@projections.register
def _compressed(mixer: Compressed, hidden: int, plan: ServingPlan, tokens: int, types: MixerTypes) -> list[Work]:
    """Queries through a rank, one entry a token, entries of many tokens, and outputs through groups of heads."""
    heads, dim = mixer.heads // plan.tp, mixer.head_dim
    groups = max(mixer.output_groups // plan.tp, 1)
    works = product(tokens, mixer.query_rank + dim, hidden, types.inputs)
    works += [norm(tokens, mixer.query_rank + dim)]
    works += product(tokens, heads * dim, mixer.query_rank, types.inputs)
    works += [elementwise(2 * tokens * (heads + 1) * dim, 2 * tokens * (heads + 1) * dim, "rotary and store")]
    if mixer.ratio:
        overlapping = 2 if mixer.indexer is not None else 1  # a sparse layer's entries overlap: two halves, and gates
        works += product(tokens, 2 * overlapping * dim, hidden, types.inputs)
        works += [elementwise(4 * tokens * overlapping * dim, 2 * tokens * dim // mixer.ratio, "compress")]
    if mixer.indexer is not None:
        wide = mixer.indexer.heads * mixer.indexer.dim
        works += product(tokens, wide, mixer.query_rank, types.inputs)
        works += product(tokens, 4 * mixer.indexer.dim, hidden, types.inputs)
        works += _indexer(wide, mixer.indexer.dim, mixer.indexer.heads, hidden, tokens)
    works += [Gemm(tokens, mixer.output_rank, heads * dim // groups, groups, HALF)]
    return [*works, *product(tokens, hidden, groups * mixer.output_rank, types.output, quantises=True)]


def kernel(
    mixer: Attention | Latent | Compressed,
    plan: ServingPlan,
    batch: int,
    queries: int,
    keys: int,
    backend: str,
    *,
    decode: bool,
) -> AttentionKernel:
    """One layer's attention for equal sequences; with drafted tokens, a decode has several queries.

    Where ranks divide the cache by tokens (`ServingPlan.dcp`), each attends with the heads of all to its own keys.
    """
    gathered = plan.dcp if decode else 1
    heads, keys = mixer.heads // plan.tp * gathered, max(-(-keys // gathered), queries)
    dtype = "float8_e4m3fn" if plan.cache != "bf16" and decode else HALF
    window = 0
    if isinstance(mixer, Attention):
        dims = (heads, max(mixer.kv_heads // plan.tp, 1), mixer.head_dim, mixer.value_dim)
        window = max(mixer.window // 2, 1) if mixer.is_chunked else mixer.window  # a query of a chunk sees half of it
        window = mixer.indexer.keys if mixer.indexer else window
    elif isinstance(mixer, Latent):
        if decode and mixer.sparse_keys:
            keys = min(keys, max(mixer.sparse_keys, queries))
        absorbed = (heads, 1, mixer.rank + mixer.rope, mixer.rank)
        dims = absorbed if decode and not mixer.expanded else (heads, heads, mixer.nope + mixer.rope, mixer.value)
    else:
        dims = (heads, 1, mixer.head_dim, mixer.head_dim)
        window = mixer.window + _entries(mixer, keys)
    return AttentionKernel(
        "forward", batch, dims[0], dims[1], queries, keys, dims[2], dims[3], True, dtype, backend, window=window,
        paged=True,
    )  # fmt: skip


def exchange(mixer: Attention | Latent | Compressed, plan: ServingPlan, tokens: int) -> list[Reduce]:
    """What ranks that divide the cache by tokens send in a decode: all their queries, and their parts of outputs.

    vLLM 0.33 gathers queries and the sums of exponents, and scatters the sums of outputs (`cp_lse_ag_out_rs`).
    """
    if plan.dcp == 1:
        return []
    heads = mixer.heads // plan.tp * plan.dcp
    query, output = (
        (mixer.rank + mixer.rope, mixer.rank)
        if isinstance(mixer, Latent)
        else (mixer.head_dim, mixer.value_dim if isinstance(mixer, Attention) else mixer.head_dim)
    )
    return [
        Reduce(2 * tokens * heads * query, "context", "all_gather"),
        Reduce(4 * tokens * heads * plan.dcp, "context", "all_gather"),
        Reduce(2 * tokens * heads * output, "context", "reduce_scatter"),
    ]


def _entries(mixer: Compressed, keys: int) -> int:
    """Entries that a query attends to beside its window."""
    if not mixer.ratio:
        return 0
    entries = keys // mixer.ratio
    return min(entries, mixer.indexer.keys) if mixer.indexer else entries


def scoring(mixer: Mixer, batch: int, queries: int, keys: int) -> list[Work]:
    """The indexer's scores of all keys, half of them where all are new, and the choice of the highest ones."""
    indexer = getattr(mixer, "indexer", None)
    if indexer is None:
        return []
    ratio = mixer.ratio if isinstance(mixer, Compressed) else 1
    seen = max((keys - queries // 2) // ratio, 1)
    scores = 4 * batch * queries * seen
    return [
        Gemm(queries * indexer.heads, seen, indexer.dim, batch, DTYPES["fp8"], out_dtype=HALF, layout="NT"),
        Softmax(scores, 4 * batch * queries * indexer.keys, scores // 4, "float32", operator="topk", row=seen),
    ]
