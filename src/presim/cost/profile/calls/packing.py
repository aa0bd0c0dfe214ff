"""Many tensors into one, and one into many: concatenation, and FSDP's copies around its collectives.

The number of rows is unknown: cat is measured with consecutive pieces and row by row, the other two for few and many
ranks. PyTorch first copies their pointers to the GPU, which is part of their time.
"""

from __future__ import annotations

from collections.abc import Iterator

from presim.cost.profile.calls.call import FLOATS, Call, Tensor, Tensors
from presim.trace.signatures import Elementwise

_CAT = "aten::cat"
_SPLIT = "aten::split_with_sizes_copy"
_CHUNKED = "aten::_chunk_cat"
OPERATORS = frozenset((_CAT, _SPLIT, _CHUNKED))
_PIECE = 64  # elements per row in row-by-row concatenation: half of an attention head
_RANKS = (8, 64)
_PARAMETERS = 9  # of a Llama layer, whose parameters are gathered together


def propose(signature: Elementwise) -> Iterator[Call]:
    """Pieces of equal size, except for the remainder."""
    if signature.operator == _CAT:
        yield from _joined(signature)
    elif signature.dtype in FLOATS:
        for ranks in _RANKS:
            yield from (_split if signature.operator == _SPLIT else _chunked)(signature, ranks)


def _joined(signature: Elementwise) -> Iterator[Call]:
    count, pieces = signature.elements, signature.fused_tensors
    joined, size = Tensor(signature.dtype, (count,)), count // pieces
    one_after_another = ((size,),) * (pieces - 1) + ((count - size * (pieces - 1),),)
    yield Call(_CAT, (Tensors(signature.dtype, one_after_another), 0), (joined,))
    if count % (pieces * _PIECE) == 0:
        yield Call(_CAT, (Tensors(signature.dtype, ((size // _PIECE, _PIECE),) * pieces), 1), (joined,))


def _split(signature: Elementwise, ranks: int) -> Iterator[Call]:
    """Each rank's part of each parameter, next to those of the other ranks."""
    width = signature.elements // ranks
    if width < _PARAMETERS or signature.elements % ranks:
        return
    sizes = [width // _PARAMETERS] * _PARAMETERS
    sizes[-1] += width - sum(sizes)
    gathered = Tensor(signature.dtype, (ranks, width))
    parts = Tensors(signature.dtype, tuple((ranks, size) for size in sizes))
    yield Call(_SPLIT, (gathered, tuple(sizes), 1), (parts,), (("out", parts),))


def _chunked(signature: Elementwise, ranks: int) -> Iterator[Call]:
    """Gradients by receiving rank, cast if they are reduced in a wider type."""
    rows, pieces = ranks, signature.fused_tensors
    width, remainder = divmod(signature.elements, rows * pieces)
    if remainder or not width:
        return
    gradients = Tensors(signature.dtype, ((rows, width),) * pieces)
    for dtype in dict.fromkeys((signature.dtype, "float32")):
        sent = Tensor(dtype, (rows, width * pieces))
        yield Call(_CHUNKED, (gradients, 0, rows), (sent,), (("out", sent),))
