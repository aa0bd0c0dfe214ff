"""The sizes along which measured work may be interpolated; everything else has to be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import msgspec

from presim.trace.signatures import Attention, Convolution, Copy, Elementwise, Gemm, GroupedGemm, MemoryBound, Signature

Key: TypeAlias = tuple[str, object]


class Line(NamedTuple):
    """Sizes of a signature that differ together along an axis."""

    names: tuple[str, ...]  # of equal fields; the first names the axis
    fits: Callable[[Any], bool] = lambda signature: True  # whether a signature lies on it

    @property
    def label(self) -> str:
        """The axis in words, the first part of its key."""
        return f"along {self.names[0]}"


LINES: dict[type, tuple[Line, ...]] = {  # by class of signature, most reliable first
    Gemm: tuple(Line((name,)) for name in ("m", "n", "k", "batch")),
    GroupedGemm: (Line(("m",), lambda signature: not signature.sizes),),
    Attention: (
        Line(("batch",)),
        Line(("q_len", "kv_len"), lambda signature: signature.q_len == signature.kv_len),
        Line(("kv_len",), lambda signature: signature.q_len != signature.kv_len),
    ),
    Convolution: (Line(("batch",)),),
    Copy: (Line(("bytes",)),),
}


def axes(signature: Signature) -> Iterator[tuple[Key, int]]:
    """Pairs of what has to be equal and the size that may differ, most reliable first."""
    for line in LINES.get(type(signature), ()):
        if line.fits(signature):
            others = msgspec.structs.replace(signature, **dict.fromkeys(line.names, 0))
            yield (line.label, others), getattr(signature, line.names[0])
    if isinstance(signature, MemoryBound) and signature.elements > 0:
        yield _memory(signature)


def _memory(signature: MemoryBound) -> tuple[Key, int]:
    """The same operator and kernel with equal bytes per element and equal row length."""
    per_element = (
        round(signature.bytes_read / signature.elements, 2),
        round(signature.bytes_written / signature.elements, 2),
    )
    kind = (str(signature.__struct_config__.tag), signature.dtype, signature.operator, signature.fused_tensors)
    row = getattr(signature, "row", 0)
    strided = signature.strided_operands if isinstance(signature, Elementwise) else 0  # bytes tell casts
    return ("along elements", (kind, row, strided, per_element)), signature.elements
