"""Hand-written Triton kernels are priced by their code, like library kernels with the same work."""

from __future__ import annotations

import importlib.util

import pytest

from presim.cost.bounds import datasheet_ns
from presim.hardware import catalogue
from presim.trace.signatures import Attention, Fused, Gemm, GroupedGemm, Normalization, Signature, Softmax
from support.captured import run

pytestmark = [
    pytest.mark.torch_cuda,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="these kernels need Triton"),
]
PRODUCT = 2 * 8192**3


def priced(kind: type[Signature], name: str = "") -> list[tuple[Signature, int]]:
    """The work of one signature class with prices in ns, in script order."""
    found = run("triton_kernels.py", steps=0).evaluation.priced
    of_name = (one for one in zip(found.trace.signatures, (price.duration_ns for price in found.prices)))
    return [(one, ns) for one, ns in of_name if isinstance(one, kind) and getattr(one, "name", "") == name]


@pytest.mark.parametrize(
    ("kernel", "library", "flops"),
    [
        ("product", Gemm, [PRODUCT]),
        ("persistent_product", Gemm, [PRODUCT]),
        ("attend", Attention, [PRODUCT, PRODUCT // 2]),  # as many FLOPs by chance; and half where it is causal
        ("grouped_product", GroupedGemm, [PRODUCT // 4]),
        ("expert_product", GroupedGemm, [PRODUCT // 4]),
    ],
)
def test_products_take_about_as_long_as_the_library_s(kernel: str, library: type[Signature], flops: list[int]) -> None:
    """Within a quarter of each other; priced by bytes, a product would reach five times the GPU's peak."""
    mine, theirs = priced(Fused, kernel), priced(library)
    assert len(mine) == len(theirs) == len(flops)
    for (one, ns), (_, library_ns), expected in zip(mine, theirs, flops):
        assert isinstance(one, Fused)
        assert one.product_flops == pytest.approx(expected, rel=0.05)
        assert ns == pytest.approx(library_ns, rel=0.25)


def test_fp8_products_run_on_fp8_units() -> None:
    ((one, ns),) = priced(Fused, "scaled_product")
    assert isinstance(one, Fused)
    assert one.products == (("float8_e4m3fn", PRODUCT),)
    ((_, half_ns),) = priced(Fused, "product")
    assert ns == pytest.approx(half_ns / 2, rel=0.1)


@pytest.mark.parametrize(
    ("kernel", "library"), [("softmax_rows", Softmax), ("layer_norm_rows", Normalization), ("quantise_groups", None)]
)
def test_rows_move_their_tensors_once(kernel: str, library: type[Signature] | None) -> None:
    """The norm reads its input three times, but caches serve the repetitions."""
    ((one, ns),) = priced(Fused, kernel)
    assert isinstance(one, Fused)
    written = 8192**2 * (1 + 4 / 128) if library is None else 2 * 8192**2
    assert one.bytes == pytest.approx(2 * 8192**2 + written, rel=0.001)
    if library is not None:
        ((_, library_ns),) = priced(library)
        assert 0.5 < ns / library_ns < 2


def test_no_kernel_exceeds_the_datasheet_s_peaks() -> None:
    gpu = catalogue.gpu("h100-sxm")
    found = run("triton_kernels.py", steps=0).evaluation.priced
    for signature, price in zip(found.trace.signatures, found.prices):
        assert price.duration_ns >= datasheet_ns(signature, gpu) * 0.999
