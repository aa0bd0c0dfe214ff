"""Lengths of sequences that lie one behind the other in tensors of [tokens, heads, dim].

Where each begins is a tensor on the device, whose values are not known here. All are taken to be equally long, which
the result says: with other lengths of the same sum, attention has more work.
"""

from __future__ import annotations

from collections.abc import Iterable

from presim.capture.reading.launch_operators import LaunchingOperator, Operand
from presim.trace.signatures import Attention

# Extensions of serving engines pass the length of the longest sequence.
_PACKED_BY = ("aten::", "flash_attn::", "te::fused_attn")


def is_packed(operator: LaunchingOperator) -> bool:
    """Whether it is attention over several packed sequences, of PyTorch or Transformer Engine."""
    if not operator.name.startswith(_PACKED_BY) or sequence_count(operator) < 2:
        return False
    return packed_tokens(operator) is not None or packed_tensors(operator, backward=False) is not None


def packed_tokens(operator: LaunchingOperator) -> tuple[int, int] | None:
    """Tokens of queries and of keys that Transformer Engine's attention gets packed, behind the size of its window."""
    is_its_own = operator.name.startswith("te::fused_attn") and len(operator.scalars) == 3
    return (operator.scalars[1], operator.scalars[2]) if is_its_own else None


def packed_tensors(operator: LaunchingOperator, *, backward: bool) -> tuple[Operand, Operand, Operand] | None:
    """Queries, keys and values of an operator, each of [tokens, heads, dim]; None if its tensors have other shapes."""
    tensors = [operand for operand in operator.inputs if len(operand.shape) == 3][1 if backward else 0 :]
    return (tensors[0], tensors[1], tensors[2]) if len(tensors) >= 3 else None


def sequence_count(operator: LaunchingOperator) -> int:
    """Sequences, from the tensor of their beginnings and the last one's end; 0 if there is none."""
    beginnings = [operand for operand in operator.inputs if operand.dtype == "int32" and len(operand.shape) == 1]
    return max(0, beginnings[0].shape[0] - 1) if beginnings else 0


def mean_length(tokens: int, sequences: int) -> int:
    """Tokens of a sequence in the mean, rounded up."""
    return -(-tokens // sequences)


def notes(attentions: Iterable[Attention]) -> tuple[str, ...]:
    """What is assumed of attention over packed sequences: one sentence, with the sizes of the largest."""
    largest = max(attentions, key=lambda attention: attention.batch * attention.q_len, default=None)
    if largest is None:
        return ()
    return (
        f"Attention over packed sequences: the device knows where each begins. {largest.batch:,} of {largest.q_len:,} "
        f"tokens are assumed, all equally long; uneven lengths take longer, up to {largest.batch:,} times as long "
        "where one sequence has all tokens.",
    )
