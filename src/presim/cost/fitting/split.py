"""Split measurements into training and test. Whole groups of shapes are held out, since similar rows would leak."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Literal

from presim.trace.signatures import Attention, Gemm, GroupedGemm, Signature

LEAST_ROWS = 20  # of one class on one GPU, if only bytes distinguish shapes
LEAST_SHAPES = 500  # if sides, heads and lengths do: 183 rows of one job made other shapes worse
Part = Literal["train", "calibrate", "test"]
Group = Callable[[Signature], str]


def least_rows(kind: str) -> int:
    """Minimum number of rows of a class on one GPU."""
    return LEAST_SHAPES if kind.startswith(("gemm", "grouped", "attention")) else LEAST_ROWS


def group_of(signature: Signature) -> str:
    """Key of rows that stay together: weight sizes of a product, heads of an attention, elements of a kernel."""
    if isinstance(signature, (Gemm, GroupedGemm)):
        return f"{signature.n} {signature.k}"
    if isinstance(signature, Attention):
        return f"{signature.heads} {signature.kv_heads} {signature.head_dim} {signature.window}"
    return f"{getattr(signature, 'elements', 0)}"


def shape_of(signature: Signature) -> str:
    """The shape of one product. As a group, it leaves other products with the same weight sizes on the other side."""
    return f"{getattr(signature, 'm', '')} {group_of(signature)}"


def part_of(signature: Signature, group: Group = group_of) -> Part:
    """The part of a group: of ten groups eight train, one sets the width of the interval, one tests."""
    number = zlib.crc32(group(signature).encode()) % 10
    return "test" if number == 0 else "calibrate" if number == 1 else "train"
