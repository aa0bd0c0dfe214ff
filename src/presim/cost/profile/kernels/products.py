"""Matrix products: of one type, with accumulation and results in a wider one, scaled FP8, and grouped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from presim.cost.profile.kernels.tensors import random
from presim.trace.signatures import Gemm, GroupedGemm

_ACTIVATED = {"gelu_bias": True, "relu_bias": False}  # fused epilogue -> whether its activation is GELU


def product(signature: Gemm) -> Callable[[], Any]:
    """A product of two matrices of one type; with an epilogue, the result is newly allocated."""
    m, n, k, batch, dtype = signature.m, signature.n, signature.k, signature.batch, signature.dtype
    if dtype == "int8":
        return functools.partial(torch._int_mm, _bytes(m, k), _bytes(n, k).t())
    matrix_a = _operand(batch, m, k, dtype, signature.layout[0] == "T")
    matrix_b = _operand(batch, k, n, dtype, signature.layout[-1] == "T")
    if batch == 1:
        matrix_a, matrix_b = matrix_a[0], matrix_b[0]
    if signature.epilogue:
        bias = random(n, dtype=dtype)
        if signature.epilogue in _ACTIVATED:
            gelu = _ACTIVATED[signature.epilogue]
            return functools.partial(torch._addmm_activation, bias, matrix_a, matrix_b, use_gelu=gelu)
        return functools.partial(torch.addmm, bias, matrix_a, matrix_b)
    wide = signature.out_dtype or dtype
    total = random(*matrix_a.shape[:-1], n, dtype=wide)
    options = {} if wide == dtype else {"out_dtype": getattr(torch, wide)}
    if signature.accumulate:
        add = torch.addmm if batch == 1 else torch.baddbmm
        return lambda: add(total, matrix_a, matrix_b, out=total, **options)
    multiply = torch.mm if batch == 1 else torch.bmm
    return lambda: multiply(matrix_a, matrix_b, out=total, **options)


def _bytes(rows: int, columns: int) -> torch.Tensor:
    return torch.randint(-128, 128, (rows, columns), dtype=torch.int8, device="cuda")


def _operand(batch: int, rows: int, columns: int, dtype: str, transposed: bool) -> torch.Tensor:
    if transposed:
        return random(batch, columns, rows, dtype=dtype).transpose(1, 2)
    return random(batch, rows, columns, dtype=dtype)


def scaled_products(signature: Gemm) -> Iterator[Callable[[], Any]]:
    """FP8 products, with the right operand by columns as tensor cores read it, and scale factors of one.

    A bias is in bf16. The accumulation mode follows the signature; if that leaves it open, as with row-wise factors,
    both modes are yielded.
    """
    m, n, k = signature.m, signature.n, signature.k
    matrix_a = random(m, k, dtype=signature.dtype)
    matrix_b = random(n, k, dtype=signature.b_dtype or signature.dtype).t()
    outer = signature.scaling == "outer"
    scale_a, scale_b = (torch.ones(shape if outer else (), device="cuda") for shape in ((m, 1), (1, n)))
    out = getattr(torch, signature.out_dtype or signature.dtype)
    bias = random(n, dtype="bfloat16") if signature.epilogue else None
    for fast in {"fast": (True,), "precise": (False,)}.get(signature.sums, (True, False)):
        yield functools.partial(
            torch._scaled_mm, matrix_a, matrix_b, scale_a, scale_b, bias=bias, out_dtype=out, use_fast_accum=fast
        )


def grouped_products(signature: GroupedGemm) -> Iterator[Callable[[], Any]]:
    """Groups of equal size: rows of the left operand times a stack, and sums over rows as in weight gradients.

    The signature does not distinguish the two. The second is omitted if groups would not have whole rows or would not
    be aligned to 16 bytes.
    """
    groups, m, n, k = signature.groups, signature.m, signature.n, signature.k
    if m >= groups:
        stack = random(groups, n, k, dtype=signature.dtype).transpose(1, 2)
        yield _grouped(random(m, k, dtype=signature.dtype), stack, _ends(m, groups))
    if m % (8 * groups) == 0:
        rows_by_group = random(k * groups, m // groups, dtype=signature.dtype).t()
        yield _grouped(rows_by_group, random(k * groups, n, dtype=signature.dtype), _ends(k * groups, groups))


def _grouped(matrix_a: torch.Tensor, matrix_b: torch.Tensor, group_ends: torch.Tensor) -> Callable[[], Any]:
    return lambda: torch._grouped_mm(matrix_a, matrix_b, offs=group_ends)


def _ends(total: int, groups: int) -> torch.Tensor:
    """The end of each group, as equal as possible."""
    return torch.tensor([total * (index + 1) // groups for index in range(groups)], dtype=torch.int32, device="cuda")
