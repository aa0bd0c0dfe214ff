"""From what was launched and the operator that launched it, to a signature.

Library calls (cuBLAS, cuDNN, NCCL, copies) carry exact shapes of their own. A kernel launch is a name and a grid;
what it does follows from its operator. An operator that launches several kernels has its bytes shared among them
by their numbers of threads.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from presim.capture import library_calls
from presim.capture.log import Descriptor
from presim.capture.operators import Operand, Operator
from presim.trace.signatures import (
    Elementwise,
    Fused,
    Index,
    Kernel,
    Normalization,
    Optimizer,
    Random,
    Reduction,
    Signature,
    Softmax,
    Sort,
    dtype_bytes,
)

_Family: TypeAlias = type[Elementwise | Reduction | Normalization | Softmax | Optimizer | Index | Sort | Random]
_FAMILIES: dict[_Family, tuple[str, ...]] = {
    Normalization: ("norm_except_dim", "layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm"),
    Softmax: ("softmax", "nll_loss", "cross_entropy", "logsumexp"),
    Sort: ("sort", "topk", "unique", "histc", "bincount", "kthvalue", "median", "mode"),
    Index: (
        "embedding",
        "index",
        "gather",
        "scatter",
        "take",
        "nonzero",
        "masked_select",
        "put",
        "searchsorted",
        "roll",
        "flip",
        "repeat_interleave",
    ),
    Random: (
        "normal",
        "uniform",
        "bernoulli",
        "dropout",
        "rand",
        "randn",
        "randint",
        "random",
        "exponential",
        "multinomial",
    ),
    Reduction: (
        "sum",
        "mean",
        "prod",
        "amax",
        "amin",
        "max",
        "min",
        "argmax",
        "argmin",
        "norm",
        "linalg_vector_norm",
        "var",
        "std",
        "var_mean",
        "std_mean",
        "any",
        "all",
        "cumsum",
        "cumprod",
        "count_nonzero",
        "bincount",
        "aminmax",
    ),
}
_WHOLE_NAME = {Reduction, Random}  # families whose words are too short to look for inside a name
_WRITE_ONLY = ("zero", "fill", "copy", "normal", "uniform", "bernoulli", "random", "exponential", "zeros", "empty")


def classify_launch(work: Descriptor, operator: Operator | None, share: float) -> Signature:
    """The signature of one device call; ``share`` is its part of its operator's bytes (0 to 1]."""
    if work.family != "kernel":
        return library_calls.signature(work, operator)
    if operator is None or not operator.inputs + operator.outputs:
        return _bare_kernel(work, operator)
    if operator.name.startswith("triton::"):
        return _triton_kernel(work, operator, share)
    special = library_calls.kernel_signature(work, operator)
    return special or _memory_bound(operator, share)


def memory_family(name: str) -> _Family:
    """The class of memory-bound work an operator does, by its base name."""
    bare = name.removeprefix("_").removeprefix("native_").removesuffix("_backward").removesuffix("_forward")
    if bare.startswith(("foreach", "fused_adam", "fused_sgd", "fused_adagrad", "amp_foreach")):
        return Optimizer
    for family, words in _FAMILIES.items():
        if bare in words or (family not in _WHOLE_NAME and any(word in bare for word in words)):
            return family
    return Elementwise


def _bare_kernel(work: Descriptor, operator: Operator | None) -> Kernel:
    grid, block = work.numbers("grid"), work.numbers("block")
    return Kernel(
        name=work.fields.get("name", "?"),
        grid=(grid[0], grid[1], grid[2]) if len(grid) == 3 else (1, 1, 1),
        block=(block[0], block[1], block[2]) if len(block) == 3 else (1, 1, 1),
        operator=operator.name if operator else "",
    )


def _triton_kernel(work: Descriptor, operator: Operator, share: float) -> Signature:
    """A generated kernel moves its tensors once; what one written by hand moves is known by its tensors only."""
    read = sum(operand.bytes for operand in operator.inputs)
    if not operator.outputs:
        return msgspec.structs.replace(_bare_kernel(work, operator), bytes=round(read * share))
    largest = max(operator.inputs + operator.outputs, key=lambda operand: operand.elements)
    written = sum(operand.bytes for operand in operator.outputs)
    name = operator.name.removeprefix("triton::")
    return Fused(name, round(read * share), round(written * share), round(largest.elements * share), largest.dtype)


def _memory_bound(operator: Operator, share: float) -> Signature:
    family = memory_family(operator.base_name)
    read, written = _traffic(operator, family)
    largest = max(operator.inputs + operator.outputs, key=lambda operand: operand.elements)
    return family(
        bytes_read=round(read * share),
        bytes_written=round(written * share),
        elements=round(largest.elements * share),
        dtype=largest.dtype,
        fused_tensors=max(1, round(largest.tensors * share)),
        operator=operator.name,
    )


def _traffic(operator: Operator, family: _Family) -> tuple[int, int]:
    """Bytes read and written by the operator as a whole, each operand once."""
    inputs = [operand for operand in operator.inputs if operand.on_device]
    outputs = [operand for operand in operator.outputs if operand.on_device]
    if family is Optimizer:
        return _optimizer_traffic(operator, inputs, outputs)
    if family is Index and len(inputs) > 1:
        return _index_traffic(operator, inputs, outputs)
    if "nll_loss" in operator.base_name:
        return _picked_traffic(inputs, outputs)
    if _overwrites(operator):
        inputs = inputs[1:]
    return sum(operand.bytes for operand in inputs), sum(operand.bytes for operand in outputs)


def _overwrites(operator: Operator) -> bool:
    """Writes its first input without reading it."""
    return operator.in_place and operator.base_name.removeprefix("_foreach_").startswith(_WRITE_ONLY)


def _optimizer_traffic(operator: Operator, inputs: list[Operand], outputs: list[Operand]) -> tuple[int, int]:
    """Multi-tensor operators return nothing: they write lists they were given.

    A fused Adam reads and writes parameters and both moments and reads the gradients; a fused SGD parameters,
    gradients and, with momentum, the buffers. Other in-place operators write their first list.
    """
    lists = [operand for operand in inputs if operand.tensors > 1 or operand.elements > 1] or inputs
    read = sum(operand.bytes for operand in (lists[1:] if _overwrites(operator) else lists))
    if outputs:
        return read, sum(operand.bytes for operand in outputs)
    if "fused" in operator.base_name:
        return read, sum(operand.bytes for position, operand in enumerate(lists) if position != 1)
    return read, lists[0].bytes if lists and operator.in_place else 0


def _index_traffic(operator: Operator, inputs: list[Operand], outputs: list[Operand]) -> tuple[int, int]:
    """Only the rows that are addressed move: the result of a gather, the values of a scatter."""
    addresses = sum(operand.bytes for operand in inputs[1:] if operand.dtype in ("int64", "int32", "bool"))
    if "backward" in operator.base_name:  # each row of the gradient is added to the row it came from
        return inputs[0].bytes + addresses, min(inputs[0].bytes, sum(operand.bytes for operand in outputs))
    if operator.in_place or (outputs and outputs[0].shape == inputs[0].shape):
        moved = sum(operand.bytes for operand in inputs[1:] if operand.dtype not in ("int64", "int32", "bool"))
        moved = moved or (inputs[1].elements if len(inputs) > 1 else 0) * dtype_bytes(inputs[0].dtype)
    else:
        moved = sum(operand.bytes for operand in outputs)
    return moved + addresses, moved


def _picked_traffic(inputs: list[Operand], outputs: list[Operand]) -> tuple[int, int]:
    """One number of each row, picked by its label; what else the gradient holds was zeroed before."""
    labels = [operand for operand in inputs if operand.dtype in ("int64", "uint8")]
    rows = labels[0].elements if labels else 0
    largest = max(inputs + outputs, key=lambda operand: operand.elements)
    moved = rows * dtype_bytes(largest.dtype)
    return moved + sum(operand.bytes for operand in labels), min(moved, sum(operand.bytes for operand in outputs))
