"""Products with few rows: linear layers of Llama models in BF16 and FP8."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch.nn.functional import linear

from serving_work.timing import Case, Run, copies, normal

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MORE_ROWS = (1024, 2048, 8192)
SHAPES = {  # name: outputs, inputs
    "8b qkv": (6144, 4096),
    "8b o": (4096, 4096),
    "8b gate_up": (28672, 4096),
    "8b down": (4096, 14336),
    "8b lm_head": (128256, 4096),
    "70b/8 qkv": (1280, 8192),
    "70b/8 o": (8192, 1024),
    "70b/8 gate_up": (7168, 8192),
    "70b/8 down": (8192, 3584),
    "70b/8 lm_head": (16032, 8192),
}
FP8 = torch.float8_e4m3fn


def half(m: int, n: int, k: int) -> list[Run]:
    """Products in BF16, each with weights of its own."""
    x = normal(m, k)
    return [functools.partial(linear, x, normal(n, k, scale=0.02)) for _ in range(copies(2 * n * k))]


def scaled(m: int, n: int, k: int, *, rows: bool) -> list[Run]:
    """Products in FP8 with one factor a tensor, or one a row and column."""
    x = normal(m, k, dtype=FP8)
    of_x = torch.full((m, 1) if rows else (), 1.0, device="cuda")
    of_w = torch.full((1, n) if rows else (), 0.02, device="cuda")
    weights = [normal(n, k, dtype=FP8) for _ in range(copies(n * k))]
    call = functools.partial(torch._scaled_mm, scale_a=of_x, scale_b=of_w, out_dtype=torch.bfloat16)
    return [functools.partial(call, x, w.t()) for w in weights]


def cases() -> Iterator[Case]:
    """Every layer with every number of rows; logits have few rows."""
    kinds = {
        "bfloat16": half,
        "float8 tensor": functools.partial(scaled, rows=False),
        "float8 rows": functools.partial(scaled, rows=True),
    }
    for kind, make in kinds.items():
        for name, (n, k) in SHAPES.items():
            if "lm_head" in name and kind != "bfloat16":
                continue
            for m in (*ROWS, 33) if "lm_head" in name else ROWS + MORE_ROWS:
                shape = {"layer": name, "m": m, "n": n, "k": k, "kind": kind}
                yield Case("product", shape, functools.partial(make, m, n, k))
