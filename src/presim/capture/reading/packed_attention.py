"""Lengths of sequences that lie one behind the other in tensors of [tokens, heads, dim].

Where each begins is a tensor on the device, whose values are not known here. All are taken to be equally long: with
other lengths of the same sum, attention has more work.
"""

from __future__ import annotations

from presim.capture.reading.launch_operators import LaunchingOperator, Operand


def packed_tensors(operator: LaunchingOperator, *, backward: bool) -> tuple[Operand, Operand, Operand] | None:
    """Queries, keys and values of an operator, each of [tokens, heads, dim]; None if its tensors have other shapes."""
    tensors = [operand for operand in operator.inputs if len(operand.shape) == 3][1 if backward else 0 :]
    return (tensors[0], tensors[1], tensors[2]) if len(tensors) >= 3 else None


def sequence_count(operator: LaunchingOperator) -> int:
    """Sequences, from the tensor of their beginnings and the last one's end; 0 if there is none."""
    beginnings = [operand for operand in operator.inputs if operand.dtype == "int32" and len(operand.shape) == 1]
    return max(0, beginnings[0].shape[0] - 1) if beginnings else 0


def mean_length(tokens: Operand, sequences: int) -> int:
    """Tokens of a sequence in the mean, rounded up."""
    return -(-tokens.shape[0] // sequences)
