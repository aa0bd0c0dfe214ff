"""Bytes that an operator has to move, from its tensors."""

from __future__ import annotations

from presim.capture.reading.launch_operators import LaunchingOperator, Operand
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Index, MemoryBound, Optimizer

_WRITE_ONLY = ("zero", "fill", "copy", "normal", "uniform", "bernoulli", "random", "exponential", "zeros", "empty")


def traffic(operator: LaunchingOperator, family: type[MemoryBound]) -> tuple[int, int]:
    """Bytes read and written by the whole operator, each operand once."""
    inputs = [operand for operand in operator.inputs if operand.on_device]
    outputs = [operand for operand in operator.outputs if operand.on_device]
    if family is Optimizer:
        return _optimizer_traffic(operator, inputs, outputs)
    if operator.base_name == "_embedding_bag" and len(inputs) > 1:
        return _bag_traffic(inputs, outputs)
    if family is Index and len(inputs) > 1:
        return _index_traffic(operator, inputs, outputs)
    if "nll_loss" in operator.base_name:
        return _label_traffic(inputs, outputs)
    inputs, outputs = moved_operands(operator)
    return sum(operand.bytes for operand in inputs), sum(operand.bytes for operand in outputs)


def moved_operands(operator: LaunchingOperator) -> tuple[list[Operand], list[Operand]]:
    """Tensors on the device that an operator reads, without a first input that it overwrites, and that it writes."""
    inputs = [operand for operand in operator.inputs if operand.on_device]
    outputs = [operand for operand in operator.outputs if operand.on_device]
    return inputs[1:] if _overwrites(operator) else inputs, outputs


def _overwrites(operator: LaunchingOperator) -> bool:
    """Whether it writes its first input without reading it."""
    return operator.in_place and operator.base_name.removeprefix("_foreach_").startswith(_WRITE_ONLY)


def _optimizer_traffic(operator: LaunchingOperator, inputs: list[Operand], outputs: list[Operand]) -> tuple[int, int]:
    """Multi-tensor operators return nothing and write to lists given as arguments.

    A fused Adam reads and writes parameters and both moments and reads gradients; a fused SGD uses parameters,
    gradients and, with momentum, buffers. Other in-place operators write their first list.
    """
    lists = [operand for operand in inputs if operand.tensors > 1 or operand.elements > 1] or inputs
    read = sum(operand.bytes for operand in (lists[1:] if _overwrites(operator) else lists))
    if outputs:
        return read, sum(operand.bytes for operand in outputs)
    if "fused" in operator.base_name:
        return read, sum(operand.bytes for position, operand in enumerate(lists) if position != 1)
    return read, lists[0].bytes if lists and operator.in_place else 0


def _index_traffic(operator: LaunchingOperator, inputs: list[Operand], outputs: list[Operand]) -> tuple[int, int]:
    """Only the addressed rows move: the result of a gather, the values of a scatter."""
    addresses = sum(operand.bytes for operand in inputs[1:] if operand.dtype in ("int64", "int32", "bool"))
    if "backward" in operator.base_name:  # each gradient row is added to the row it came from
        return inputs[0].bytes + addresses, min(inputs[0].bytes, sum(operand.bytes for operand in outputs))
    if operator.in_place or (outputs and outputs[0].shape == inputs[0].shape):
        row_bytes = sum(operand.bytes for operand in inputs[1:] if operand.dtype not in ("int64", "int32", "bool"))
        row_bytes = row_bytes or (inputs[1].elements if len(inputs) > 1 else 0) * dtype_bytes(inputs[0].dtype)
    else:
        row_bytes = sum(operand.bytes for operand in outputs)
    return row_bytes + addresses, row_bytes


def _label_traffic(inputs: list[Operand], outputs: list[Operand]) -> tuple[int, int]:
    """One element of each row, selected by its label; the rest of the gradient was zeroed before."""
    labels = [operand for operand in inputs if operand.dtype in ("int64", "uint8")]
    rows = labels[0].elements if labels else 0
    largest = max(inputs + outputs, key=lambda operand: operand.elements)
    label_row_bytes = rows * dtype_bytes(largest.dtype)
    label_bytes = sum(operand.bytes for operand in labels)
    return label_row_bytes + label_bytes, min(label_row_bytes, sum(operand.bytes for operand in outputs))


def _bag_traffic(inputs: list[Operand], outputs: list[Operand]) -> tuple[int, int]:
    """Each indexed row is read and added to its bag; only the first output holds bags."""
    table, indices = inputs[0], inputs[1]
    row = table.shape[-1] * dtype_bytes(table.dtype) if table.shape else 0
    return indices.elements * row + indices.bytes, sum(operand.bytes for operand in outputs)
