"""Attention to one rank's keys and values of several, as a ring runs it: its sums are joined, or undone, by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from presim.composition.graph.graph_schema import Node
from presim.composition.passes.ring import STEP

if TYPE_CHECKING:
    from support.executing.interpreter import Rank


def send_on(given: list[torch.Tensor], group: Any) -> list[torch.Tensor]:
    """To the next rank, from the one before."""
    place, ranks = dist.get_rank(group), dist.get_world_size(group)
    came = [torch.empty_like(one) for one in given]
    for one, other in zip(given, came):
        sent = dist.isend(one, (place + 1) % ranks, group)
        dist.recv(other, (place - 1) % ranks, group)
        sent.wait()
    return came


def _scores(rank: Rank, node: Node, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Of each pair; those that the mask hides are far below all others."""
    assert rank.positions is not None
    parts = [torch.empty_like(rank.positions) for _ in range(rank.ranks)]
    dist.all_gather(parts, rank.positions, group=rank.group)
    theirs = parts[(rank.place - int(str(node.attributes[STEP]))) % rank.ranks]
    hidden = theirs[None, :] > rank.positions[:, None]
    return (query @ key.transpose(2, 3) / math.sqrt(query.shape[3])).masked_fill(hidden, -1e30)


def _for_each_head(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return key.repeat_interleave(query.shape[1] // key.shape[1], 1)


def forward(rank: Rank, node: Node, inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """The result for these keys alone, and the logarithm of its sum."""
    query, key, value = inputs[0], *(_for_each_head(inputs[0], one) for one in inputs[1:3])
    scores = _scores(rank, node, query, key)
    sums = scores.logsumexp(3, keepdim=True)
    return [(scores - sums).exp() @ value, sums, None, None]


def merge(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> list[torch.Tensor]:
    """Two results over their common sum."""
    out, sums, other, others = inputs
    total = torch.logaddexp(sums, others)
    return [out * (sums - total).exp() + other * (others - total).exp(), total]


def add(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> list[torch.Tensor]:
    """Their sum."""
    return [inputs[0] + inputs[1]]


def backward(rank: Rank, node: Node, inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Gradients through these keys: the result and its sum are those over all keys."""
    gradient, query, few_keys, few_values, out, sums = inputs[:6]
    key, value = _for_each_head(query, few_keys), _for_each_head(query, few_values)
    weights = (_scores(rank, node, query, key) - sums).exp()
    of_weights = gradient @ value.transpose(2, 3)
    of_scores = weights * (of_weights - (gradient * out).sum(3, keepdim=True)) / math.sqrt(query.shape[3])
    of_keys, of_values = of_scores.transpose(2, 3) @ query, weights.transpose(2, 3) @ gradient
    shape = (len(query), few_keys.shape[1], -1, *few_keys.shape[2:])
    return [of_scores @ key, of_keys.reshape(shape).sum(2), of_values.reshape(shape).sum(2)]
