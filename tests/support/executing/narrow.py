"""Products of values in 8 and 4 bits and of 2:4 weights, as passes put them into graphs and as eager layers do.

What a cast makes is kept as what it stands for: a value of the narrow type times its factor, in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from presim.composition.graph.graph_schema import Node, Operand
from presim.composition.passes.quantisation import CAST, FORMATS, LARGEST
from presim.composition.passes.sparse_weights import TILE
from presim.composition.schedule import BlockRun, value_key

if TYPE_CHECKING:
    from support.executing.interpreter import Rank

GROUP = 128  # 4-bit weights that share a factor
_BLOCKS = {"fp8-row": 0, "int8": 0, "fp8-block": 128, "mxfp8": 32, "nvfp4": 16}  # values that share one; 0: a whole row
_FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_PRODUCTS = ("aten::mm", "aten::addmm")


def narrowed(given: torch.Tensor, name: str, dim: int, largest: torch.Tensor | None = None) -> torch.Tensor:
    """A matrix as a format keeps it, factors along ``dim``; ``largest``: of the matrix, where a kernel finds it."""
    matrix = given.float()
    if name == "fp8-tensor":
        assert largest is not None
        return _fp8(matrix, largest / 448)
    rows = matrix if dim == 1 else matrix.t()
    size = _BLOCKS[name] or rows.shape[1]
    size = math.gcd(size, rows.shape[1])
    blocks = rows.reshape(len(rows), -1, size)
    most = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-12)
    if name == "int8":
        made = (blocks / (most / 127)).round().clamp(-127, 127) * (most / 127)
    elif name == "nvfp4":
        assert largest is not None
        whole = largest / (448 * 6)
        factors = (most / 6 / whole).to(torch.float8_e4m3fn).float() * whole
        steps = (blocks / factors).clamp(-6, 6)
        nearest = (steps.abs()[..., None] - _FP4).abs().argmin(-1)
        made = _FP4[nearest] * steps.sign() * factors
    else:
        factors = torch.exp2(torch.ceil(torch.log2(most / 448))) if name == "mxfp8" else most / 448
        made = _fp8(blocks, factors)
    made = made.reshape(rows.shape)
    return made if dim == 1 else made.t()


def _fp8(given: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    return (given / factors).clamp(-448, 448).to(torch.float8_e4m3fn).float() * factors


def pruned(weight: torch.Tensor) -> torch.Tensor:
    """A weight of which each 4 x 4 tile keeps at most two values in a row and in a column, the largest first."""
    tiles = weight.unfold(0, 4, 4).unfold(1, 4, 4).reshape(-1, 16)
    kept = torch.zeros_like(tiles, dtype=torch.bool)
    everywhere = torch.arange(len(tiles))
    for place in tiles.abs().argsort(dim=1, descending=True, stable=True).t():
        row, column = place // 4, place % 4
        square = kept.reshape(-1, 4, 4)
        has_room = (square[everywhere, row].sum(1) < 2) & (square[everywhere, :, column].sum(1) < 2)
        kept[everywhere, place] = has_room
    rows, columns = weight.shape
    order = (tiles * kept).reshape(rows // 4, columns // 4, 4, 4)
    return order.permute(0, 2, 1, 3).reshape(rows, columns)


def packed(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight in 4 bits, two a byte, and a factor for each group of a row."""
    groups = weight.float().reshape(len(weight), -1, GROUP)
    factors = (groups.abs().amax(-1, keepdim=True) / 7).to(weight.dtype)
    steps = (groups / factors.float()).round().clamp(-8, 7).to(torch.int16).reshape(weight.shape) + 8
    return (steps[:, ::2] * 16 + steps[:, 1::2]).to(torch.uint8), factors[..., 0]


def unpacked(steps: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """The weight again, in the factors' type."""
    values = torch.stack((steps // 16, steps % 16), -1).reshape(len(steps), -1).float() - 8
    return (values.reshape(len(steps), -1, GROUP) * factors.float()[..., None]).reshape(values.shape).to(factors.dtype)


def stored(parameters: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """A parameter's storage; one in 4 bits is unpacked with its factors, as kernels do while they multiply."""
    factors = parameters.get(f"{name}_scales")
    whole = parameters[name] if factors is None else unpacked(parameters[name], factors)
    return whole.detach().reshape(-1)


def compute(rank: Rank, run: BlockRun, node: Node) -> bool:
    """Run a node that a pass of this kind has put in or changed; False for all others."""
    if node.operator == LARGEST:
        rank.tensor(run, node.outputs[0], make=True).copy_(rank.tensor(run, node.inputs[0]).float().abs().amax())
    elif node.operator == CAST:
        given = rank.tensor(run, node.inputs[0])
        largest = rank.tensor(run, node.inputs[1]) if len(node.inputs) > 1 else None
        made = narrowed(given, _format(rank), _summed_over(rank, run, node.outputs[0]), largest)
        _keep(rank, run, node.outputs[0], made)
    elif node.operator == TILE:
        weight = node.inputs[0]
        matrix = rank.tensor(run, weight)  # in the order of the product
        made = pruned(matrix.t()).t()
        for out in node.outputs:
            _keep(rank, run, Operand(out.value, weight.shape, weight.dtype, weight.stride), made)
    elif node.operator in _PRODUCTS and node.inputs[-1].dtype in {one.dtype for one in FORMATS.values()}:
        left, right = (rank.tensor(run, one) for one in node.inputs[-2:])
        rank.tensor(run, node.outputs[0], make=True).copy_(left @ right)
    else:
        return False
    return True


def _format(rank: Rank) -> str:
    assert rank.format in FORMATS, "a graph with casts is run with the format's name"
    return rank.format


def _summed_over(rank: Rank, run: BlockRun, cast: Operand) -> int:
    """The dimension of a cast matrix that its product sums over."""
    for node in rank.graph.segments[run.segment].nodes:
        if node.operator in _PRODUCTS:
            for place, operand in zip((1, 0), node.inputs[-2:]):
                if operand.value == cast.value:
                    return place
    raise AssertionError(f"no product takes value {cast.value}")


def _keep(rank: Rank, run: BlockRun, out: Operand, made: torch.Tensor) -> None:
    """As a storage that the operand's shape and strides fit."""
    shape, stride = rank.shapes[out.shape], rank.shapes[out.stride]
    span = 1 + sum((size - 1) * step for size, step in zip(shape, stride))
    storage = torch.zeros(span, dtype=made.dtype)
    storage.as_strided(shape, stride).copy_(made)
    key = value_key(rank.graph, run, out.value)
    assert key is not None
    rank.storages[key] = storage


class _Narrow(torch.autograd.Function):
    """A linear layer whose three products have operands of a narrow type."""

    @staticmethod
    def forward(context: Any, given: torch.Tensor, weight: torch.Tensor, name: str) -> torch.Tensor:
        context.save_for_backward(given, weight)
        context.name = name
        return _product(given, weight.t(), name)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        given, weight = context.saved_tensors
        (gradient,) = gradients
        return _product(gradient, weight, context.name), _product(gradient.t(), given, context.name), None


def _product(left: torch.Tensor, right: torch.Tensor, name: str) -> torch.Tensor:
    with_largest = FORMATS[name].largest
    made = [
        narrowed(one, name, dim, one.float().abs().amax() if with_largest else None)
        for one, dim in ((left, 1), (right, 0))
    ]
    return (made[0] @ made[1]).to(left.dtype)


class _Sparse(torch.autograd.Function):
    """A linear layer with a 2:4 weight, whose gradient is dense."""

    @staticmethod
    def forward(context: Any, given: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        kept = pruned(weight)
        context.save_for_backward(given, kept)
        return given @ kept.t()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        given, kept = context.saved_tensors
        (gradient,) = gradients
        return gradient @ kept, gradient.t() @ given


def make_eager(blocks: torch.nn.Module, name: str) -> None:
    """The linear layers of blocks as a pass means them: a format's name, ``sparse24`` or ``w4a16``."""
    for layer in blocks.modules():
        if not isinstance(layer, torch.nn.Linear):
            continue
        if name == "w4a16":
            layer.weight.data = unpacked(*packed(layer.weight.data))
            continue
        layer.forward = _forward(layer.weight, name)  # type: ignore[method-assign]


def _forward(weight: torch.nn.Parameter, name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    def forward(given: torch.Tensor) -> torch.Tensor:
        rows = given.reshape(-1, given.shape[-1])
        made = _Sparse.apply(rows, weight) if name == "sparse24" else _Narrow.apply(rows, weight, name)
        return made.reshape(*given.shape[:-1], -1)

    return forward
