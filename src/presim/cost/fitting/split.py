"""Which measurements a fit sees. Shapes are held out whole: a row beside its neighbours would be no test."""

from __future__ import annotations

import zlib
from typing import Literal

from presim.trace.signatures import Attention, Gemm, GroupedGemm, Signature

Part = Literal["train", "calibrate", "test"]


def group_of(signature: Signature) -> str:
    """What must not be on both sides: weights' sizes of a product, heads of an attention, elements of a kernel."""
    if isinstance(signature, (Gemm, GroupedGemm)):
        return f"{signature.n} {signature.k}"
    if isinstance(signature, Attention):
        return f"{signature.heads} {signature.kv_heads} {signature.head_dim} {signature.window}"
    return f"{getattr(signature, 'elements', 0)}"


def part_of(signature: Signature) -> Part:
    """Of ten groups eight train, one sets the width of the interval, one tests."""
    number = zlib.crc32(group_of(signature).encode()) % 10
    return "test" if number == 0 else "calibrate" if number == 1 else "train"
