"""What exchanges of tokens with experts put into a graph, on CPU tensors.

Every token chooses all experts, so that sizes do not depend on values: each rank gets the tokens of all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from presim.composition.graph.graph_schema import Node
from presim.composition.passes.collective_names import ALL_GATHER, ALL_TO_ALL, COMBINE, DISPATCH, REDUCE_SCATTER

if TYPE_CHECKING:
    from presim.composition.schedule import BlockRun
    from support.executing.interpreter import Rank

GROUP = "experts"


def special(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> list[torch.Tensor] | None:
    """The outputs of a node that a pass has put in; None if it is another's."""
    if node.operator == "aten::histc":  # of integers, which the CPU has none for
        return [torch.bincount(inputs[0].reshape(-1), minlength=shapes[0][0])]
    if "call" in node.attributes or not node.scope.endswith(".experts") or node.operator not in _MADE:
        return None
    made = _MADE[node.operator](rank, node, [_own_part(rank, one) for one in inputs], shapes)
    return [one.reshape(shape) for one, shape in zip(made, shapes)]


def communicate(rank: Rank, run: BlockRun, node: Node) -> None:
    """A collective among the ranks that share experts, along the first dimension."""
    for given, out in zip(node.inputs, node.outputs):
        mine = rank.tensor(run, given).contiguous()
        parts = [torch.empty_like(mine, dtype=_sent(mine)) for _ in range(rank.ranks)]
        dist.all_gather(parts, mine.to(_sent(mine)), group=rank.group)
        if node.operator in (ALL_GATHER, DISPATCH):
            result = torch.cat(parts)
        elif node.operator == ALL_TO_ALL:
            result = torch.cat([one.chunk(rank.ranks)[rank.place] for one in parts])
        else:
            assert node.operator in (REDUCE_SCATTER, COMBINE)
            result = torch.stack(parts).sum(0).chunk(rank.ranks)[rank.place]
        made = rank.tensor(run, out, make=True)
        made.copy_(result.reshape(made.shape))


def _sent(tensor: torch.Tensor) -> torch.dtype:
    return torch.uint8 if tensor.dtype == torch.bool else tensor.dtype


def _own_part(rank: Rank, tensor: torch.Tensor) -> torch.Tensor:
    """A view of the first rank's columns as this rank has it."""
    if tensor.dim() == 2 and tensor.stride(0) > tensor.shape[1]:
        return tensor.as_strided(tensor.shape, tensor.stride(), rank.place * tensor.shape[1])
    return tensor


def _cloned(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> list[torch.Tensor]:
    """Turned: counts from ranks by own experts to own experts by ranks, tokens by experts to experts by tokens."""
    one = inputs[0]
    return [(one.view(rank.ranks, -1) if one.dim() == 1 else one).t()]


def _summed(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> list[torch.Tensor]:
    dims: Any = node.attributes.get("dim", [0])
    return [inputs[0].long().sum(dims[0])]


def _put(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> list[torch.Tensor]:
    into, places, rows = inputs
    return [into.clone().index_put((places,), rows, accumulate=bool(node.attributes["accumulate"]))]


def _scattered(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> list[torch.Tensor]:
    """Choices as one-hot rows: of all experts, or of the rank's own."""
    into, choices = inputs[:2]
    whole = into.new_zeros(len(into), rank.experts)
    whole = whole.scatter(1, choices, inputs[2] if len(inputs) == 3 else torch.ones_like(choices, dtype=into.dtype))
    return [_columns(rank, whole, into.shape[1])]


def _columns(rank: Rank, whole: torch.Tensor, count: int) -> torch.Tensor:
    return whole if count == rank.experts else whole[:, rank.place * count : (rank.place + 1) * count]


def _selected(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> list[torch.Tensor]:
    return [inputs[0].expand(inputs[1].shape)[inputs[1]]]


def _widened(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> list[torch.Tensor]:
    """Gradients of the rank's own experts by tokens, among zeros for all others."""
    whole = inputs[0].new_zeros(shapes[0])
    _columns(rank, whole, len(inputs[0])).copy_(inputs[0].t())
    return [whole]


def _picked(rank: Rank, node: Node, inputs: list[torch.Tensor], shapes: Any) -> list[torch.Tensor]:
    """For each choice what belongs to its expert; nothing if it is another rank's."""
    given, choices = inputs
    whole = given.new_zeros(len(given), rank.experts)
    _columns(rank, whole, given.shape[1]).copy_(given)
    return [whole.gather(1, choices)]


_MADE: dict[str, Any] = {
    "experts::splits": lambda rank, node, inputs, shapes: [],
    "aten::_local_scalar_dense": lambda rank, node, inputs, shapes: [],
    "aten::cumsum": lambda rank, node, inputs, shapes: [inputs[0].cumsum(0)],
    "aten::sub": lambda rank, node, inputs, shapes: [inputs[0] - inputs[1]],
    "aten::add": lambda rank, node, inputs, shapes: [inputs[0] + inputs[1]],
    "aten::arange": lambda rank, node, inputs, shapes: [torch.arange(shapes[0][0])],
    "aten::repeat_interleave": lambda rank, node, inputs, shapes: [inputs[0].repeat_interleave(inputs[1].long())],
    "aten::index": lambda rank, node, inputs, shapes: [inputs[0][inputs[1].long()]],
    "aten::new_zeros": lambda rank, node, inputs, shapes: [torch.zeros(shapes[0])],
    "aten::new_empty": lambda rank, node, inputs, shapes: [torch.zeros(shapes[0])],
    "aten::scatter_add_": lambda rank, node, inputs, shapes: [inputs[0].index_add(0, inputs[1], inputs[2])],
    "aten::masked_scatter_": lambda rank, node, inputs, shapes: [inputs[0].masked_scatter(inputs[1], inputs[2])],
    "aten::clone": _cloned,
    "aten::sum": _summed,
    "aten::index_put": _put,
    "aten::index_put_": _put,
    "aten::scatter": _scattered,
    "aten::masked_select": _selected,
    "aten::slice_backward": _widened,
    "aten::gather": _picked,
}
