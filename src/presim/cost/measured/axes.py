"""The sizes along which measured work may be interpolated; everything else has to be equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from presim.trace.signatures import Attention, Convolution, Copy, Elementwise, Gemm, GroupedGemm, MemoryBound, Signature

Key: TypeAlias = tuple[str, object]


def axes(signature: Signature) -> Iterator[tuple[Key, int]]:
    """Pairs of what has to be equal and the size that may differ, most reliable first."""
    if isinstance(signature, Gemm):
        yield from (_without(signature, name) for name in ("m", "n", "k", "batch"))
    elif isinstance(signature, GroupedGemm):
        if not signature.sizes:
            yield _without(signature, "m")
    elif isinstance(signature, Attention):
        yield from _attention(signature)
    elif isinstance(signature, Convolution):
        yield _without(signature, "batch")
    elif isinstance(signature, Copy):
        yield _without(signature, "bytes")
    elif isinstance(signature, MemoryBound) and signature.elements > 0:
        yield _memory(signature)


def _without(signature: Signature, *names: str) -> tuple[Key, int]:
    size: int = getattr(signature, names[0])
    return (f"along {names[0]}", msgspec.structs.replace(signature, **dict.fromkeys(names, 0))), size


def _attention(signature: Attention) -> Iterator[tuple[Key, int]]:
    yield _without(signature, "batch")
    if signature.q_len == signature.kv_len:
        yield _without(signature, "q_len", "kv_len")
    else:
        yield _without(signature, "kv_len")


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
