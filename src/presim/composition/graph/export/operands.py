"""Properties of an operator call, besides its tensors, that its device work depends on."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


def written(schema: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor]) -> tuple[int, ...]:
    """Positions of the tensors that a call writes."""
    positions: list[int] = []
    seen = 0
    for position, argument in enumerate(schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
        if argument.alias_info is not None and argument.alias_info.is_write:
            positions += range(seen, seen + len(tensors))
        seen += len(tensors)
    return tuple(positions)


def attributes(
    function: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]
) -> dict[str, int | str | list[int]]:
    """Other properties that the work depends on: layout of a product, flags, dimensions and other small numbers."""
    attribute_values: dict[str, int | str | list[int]] = {}
    name = function._schema.name
    if name in _LAYOUTS:
        a, b = (inputs[position] for position in _LAYOUTS[name])
        attribute_values["layout"] = _layout(a) + _layout(b)
    if name in ("aten::clone", "aten::_to_copy", "aten::copy_"):
        target = inputs[0] if name == "aten::copy_" else outputs[0]
        attribute_values["plain"] = int(_same_layout(inputs[-1], target))
    for position, argument in enumerate(function._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name, argument.default_value)
        if argument.name in _IGNORED or (argument.name == "stride" and "conv" not in name):
            continue
        if (
            isinstance(value, bool)
            or (isinstance(value, int) and argument.name in _KEPT)
            or (argument.name == "exponent" and value == 1)
        ):
            attribute_values[argument.name] = int(value)
        elif isinstance(value, (list, tuple)) and argument.name in _KEPT and all(type(item) is int for item in value):
            attribute_values[argument.name] = list(value)
    return attribute_values


def scaled_mm(args: Any, kwargs: Any) -> torch.Tensor:
    """The result of a product in 8 bits; PyTorch refuses sizes that are no multiples of 16, as those of a trace."""
    dtype = kwargs.get("out_dtype") or (args[6] if len(args) > 6 else None) or args[0].dtype
    return torch.empty((args[0].shape[0], args[1].shape[1]), dtype=dtype, device="meta")


_LAYOUTS = {
    "aten::mm": (0, 1),
    "aten::_scaled_mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::baddbmm": (1, 2),
}
_IGNORED = ("pin_memory", "non_blocking", "implicit", "sparse", "scale_grad_by_freq", "half_to_float")
_KEPT = (
    "dim", "dims", "dim0", "dim1", "keepdim", "groups", "stride", "padding", "dilation", "k", "exponent", "flops",
    "exponentials",
)  # fmt: skip


def _layout(matrix: torch.Tensor) -> str:
    """cuBLAS' layout flag: N for contiguous rows, T for contiguous columns."""
    rows, columns = matrix.shape[-2:]
    across, along = matrix.stride()[-2:]
    if along == 1 and across >= max(1, columns):
        return "N"
    return "T" if across == 1 and along >= max(1, rows) else "N"


def _same_layout(source: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether a copy keeps the memory layout."""
    if (source.dtype, source.shape, source.stride()) != (target.dtype, target.shape, target.stride()):
        return False
    return math.prod(source.shape) == 1 + sum((n - 1) * step for n, step in zip(source.shape, source.stride()))


def dtype_name(tensor: torch.Tensor) -> str:
    """PyTorch's name of a tensor's type, without its module."""
    return str(tensor.dtype).removeprefix("torch.")
