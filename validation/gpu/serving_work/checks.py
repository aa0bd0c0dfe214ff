"""Whether the kernels that are timed compute what they should: relative errors against plain PyTorch in float32."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.nn.functional import rms_norm, silu

from serving_work import attention, experts, pointwise
from serving_work.timing import Case, Row, Run, normal

Pair = Callable[[], tuple[torch.Tensor, torch.Tensor]]  # what the kernel computes, and what is right


def attended(kernel: str, queries: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Paged attention of three sequences, the last against all of its keys one by one."""
    heads, kv_heads, keys = 8, 2, 500
    batch = attention.Batch(heads, kv_heads, [(3, queries, keys)], torch.bfloat16)
    table = batch.table()
    if kernel == "flash3":
        attention.flash3(batch, table, attention.schedule(batch))()
    else:
        attention.triton(batch, table)()
    k, v = (side[table[-1].long()].flatten(0, 1)[:keys].float() for side in (batch.k, batch.v))
    q = batch.q[-queries:].float().view(queries, kv_heads, -1, attention.HEAD)
    scores = torch.einsum("qghd,kgd->ghqk", q, k) * attention.HEAD**-0.5
    seen = torch.arange(keys, device="cuda") <= torch.arange(keys - queries, keys, device="cuda")[:, None]
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return batch.out[-queries:], torch.einsum("ghqk,kgd->qghd", weights, v).reshape(queries, heads, attention.HEAD)


def normed() -> tuple[torch.Tensor, torch.Tensor]:
    """Residual addition and norm."""
    x, residual, out = (normal(64, 4096) for _ in range(3))
    weight = normal(4096)
    right = rms_norm(x.float() + residual.float(), (4096,), weight.float(), 1e-5)
    pointwise.add_norm(x, residual, weight, out)
    return out, right


def activated() -> tuple[torch.Tensor, torch.Tensor]:
    """Gated activation."""
    x, out = normal(64, 2 * 3584), normal(64, 3584)
    pointwise.silu_and_mul(x, out)
    gate, up = x.float().chunk(2, -1)
    return out, silu(gate) * up


def routed(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A layer of experts, each choice computed apart."""
    layer = experts.Layer("mixtral-8x7b/2", tokens, "bfloat16")
    (gate_up, down), *_ = experts.weights("mixtral-8x7b/2", "bfloat16")
    layer.run("layer", gate_up, down)
    chosen = layer.picks.to("cuda")
    right = torch.empty(tokens, layer.chosen, layer.hidden, device="cuda")
    for token in range(tokens):
        for place in range(layer.chosen):
            expert = chosen[token, place]
            gate, up = (gate_up[expert].float() @ layer.x[token].float()).chunk(2)
            right[token, place] = (down[expert].float() @ (silu(gate) * up)) * layer.weights[token, place]
    return layer.down, right


def compared(pair: Pair, _: Sequence[Run]) -> Row:
    """Norm of the difference over the norm of what is right."""
    got, right = pair()
    return {"relative_error": float((got.float() - right).norm() / right.norm())}


def cases() -> Iterator[Case]:
    """One of each kernel."""
    pairs: dict[str, Pair] = {
        "add_norm": normed,
        "silu_and_mul": activated,
        "experts": functools.partial(routed, 8),
        "experts, unsorted": functools.partial(routed, 1),
    }
    for kernel in ("flash3", "triton"):
        for queries in (1, 300):
            pairs[f"{kernel}, {queries} queries"] = functools.partial(attended, kernel, queries)
    for name, pair in pairs.items():
        yield Case("check", {"kernel": name}, list, functools.partial(compared, pair))
