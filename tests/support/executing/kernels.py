"""Operators that need more than their call: attention, sizes that passes have changed, words split between ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from presim.composition.graph.graph_schema import Node
from presim.composition.passes.ring import ADD, MERGE, STEP
from support.executing import ring

if TYPE_CHECKING:
    from support.executing.interpreter import Rank

Made = list[torch.Tensor | None] | None


@dataclasses.dataclass
class Memory:
    """What a loss's backward pass knows without communication, as `loss_parallel` does."""

    rows: torch.Tensor | None = None  # sum of each row's gradient over all words


def special(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Sequence[tuple[int, ...]]) -> Made:
    """The outputs of an operator that is handled here; None for all others."""
    make = _MADE.get(node.operator)
    return make(rank, node, inputs, shapes) if make else None


def _positions(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    """With context parallelism, those of this rank's tokens, which frameworks hand to the model."""
    count = shapes[0][0]
    if rank.positions is not None and count == len(rank.positions):
        return [rank.positions]
    return [torch.arange(count)]


def _filled(value: float) -> Any:
    return lambda rank, node, inputs, shapes: [torch.full(shapes[0], value)]


def _labels(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    """Labels are given shifted by one, as they must be where tokens are split."""
    if inputs[0].dtype != torch.int64:
        return None
    return [torch.cat((inputs[0][:, :1], rank.shifted), 1)]


def _mask(rank: Rank, query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
    """Keys that each query may see, where its rank has a part of the tokens."""
    if rank.positions is None or query.shape[2] == keys.shape[2]:
        return None
    parts = [torch.empty_like(rank.positions) for _ in range(rank.ranks)]
    dist.all_gather(parts, rank.positions, group=rank.group)
    return torch.cat(parts)[None, :] <= rank.positions[:, None]


def _attend(
    rank: Rank, node: Node, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The whole of keys and values, where the graph has half of them for its cost."""

    def whole(one: torch.Tensor) -> torch.Tensor:
        shape = rank.whole.get(one.untyped_storage().data_ptr())
        return one if shape is None or rank.positions is None else _all_of(one, shape)

    key, value = whole(key), whole(value)
    mask = _mask(rank, query, key)
    scaled = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=query.shape[1] != key.shape[1]
    )
    return scaled, key, value


def _all_of(one: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    order = sorted(range(len(shape)), key=lambda dim: -one.stride(dim))
    stride, step = [0] * len(shape), 1
    for dim in reversed(order):
        stride[dim], step = step, step * shape[dim]
    return one.as_strided(shape, stride)


def _attention(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    if STEP in node.attributes:
        return ring.forward(rank, node, inputs)
    out = _attend(rank, node, *inputs[:3])[0]
    return [out, *([None] * (len(shapes) - 1))]


def _attention_backward(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    if STEP in node.attributes:
        return ring.backward(rank, node, inputs)
    gradient, *others = inputs[:4]
    query, key, value = (one.detach().clone() for one in others)
    with torch.enable_grad():
        leaves = [query.requires_grad_()]
        shape = rank.whole.get(others[1].untyped_storage().data_ptr())
        is_whole = shape is not None and rank.positions is not None and rank.positions.numel() == query.shape[2]
        leaves += [
            (_all_of(one, shape) if is_whole and shape else copy).detach().clone().requires_grad_()
            for one, copy in zip(others[1:], (key, value))
        ]
        mask = _mask(rank, leaves[0], leaves[1])
        gqa = leaves[0].shape[1] != leaves[1].shape[1]
        out = F.scaled_dot_product_attention(*leaves, attn_mask=mask, is_causal=mask is None, enable_gqa=gqa)
    return list(torch.autograd.grad(out, leaves, gradient))


def _embedding(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    weight, tokens = inputs
    if len(weight) == len(rank.parameters["words"]):
        return None
    local, is_here = _local(rank, tokens, len(weight))
    return [F.embedding(local, weight) * is_here[..., None]]


def _embedding_backward(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    gradient, tokens = inputs
    words = shapes[0][0]
    local, is_here = _local(rank, tokens, words)
    if words == len(rank.parameters["words"]):
        local, is_here = tokens, torch.ones_like(tokens, dtype=torch.bool)
    made = torch.zeros(shapes[0], dtype=gradient.dtype)
    rows = (gradient * is_here[..., None]).reshape(-1, gradient.shape[-1])
    return [made.index_add_(0, local.reshape(-1), rows)]


def _local(rank: Rank, tokens: torch.Tensor, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    local = tokens - rank.place * words
    is_here = (local >= 0) & (local < words)
    return local.clamp(0, words - 1), is_here


def _is_split(rank: Rank, logits: torch.Tensor) -> bool:
    return logits.shape[-1] < len(rank.parameters["words"])


def _log_softmax(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    if not _is_split(rank, inputs[0]):
        return None
    largest = inputs[0].amax(-1, keepdim=True)
    dist.all_reduce(largest, dist.ReduceOp.MAX, group=rank.group)
    total = (inputs[0] - largest).exp().sum(-1, keepdim=True)
    dist.all_reduce(total, group=rank.group)
    return [inputs[0] - largest - total.log()]


def _nll(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    logs, labels = inputs
    if not _is_split(rank, logs):
        return None
    local, is_here = _local(rank, labels, logs.shape[-1])
    picked = logs.gather(1, local[:, None])[:, 0] * is_here
    dist.all_reduce(picked, group=rank.group)
    return [-picked.mean(), torch.tensor(float(len(labels)))]


def _nll_backward(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    gradient, logs, labels, total = inputs
    if not _is_split(rank, logs):
        return None
    local, is_here = _local(rank, labels, logs.shape[-1])
    rank.memory.rows = (-gradient / total).expand(len(labels), 1)
    return [torch.zeros_like(logs).scatter_(1, local[:, None], rank.memory.rows * is_here[:, None])]


def _log_softmax_backward(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    if not _is_split(rank, inputs[0]) or rank.memory.rows is None:
        return None
    return [inputs[0] - inputs[1].exp() * rank.memory.rows]


def _slice_backward(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> Made:
    from support.executing.recording import CALLS

    _, args, _ = CALLS[int(str(node.attributes["call"]))]
    dim, start, end, step = args[2:6]
    return [torch.ops.aten.slice_backward(inputs[0], list(shapes[0]), dim, start, end, step)]


_MADE: dict[str, Any] = {
    ADD: ring.add,
    MERGE: ring.merge,
    "aten::arange": _positions,
    "aten::ones": _filled(1.0),
    "aten::zeros": _filled(0.0),
    "aten::new_zeros": _filled(0.0),
    "aten::constant_pad_nd": _labels,
    "aten::slice_backward": _slice_backward,
    "aten::_scaled_dot_product_cudnn_attention": _attention,
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention_backward,
    "aten::embedding": _embedding,
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::_log_softmax": _log_softmax,
    "aten::_log_softmax_backward_data": _log_softmax_backward,
    "aten::nll_loss_forward": _nll,
    "aten::nll_loss_backward": _nll_backward,
}
