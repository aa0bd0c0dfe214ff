"""FLOPs that count for MFU and for HFU."""

from __future__ import annotations

import pytest

from presim.analysis.time.flops import count_flops, executed_flops, model_flops, utilisation
from presim.analysis.time.steps import Step
from presim.result import Flops
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Phase
from presim.trace.signatures import Attention, Elementwise, Fused, Gemm, Signature

GEMM = Gemm(8, 4, 2, 3, "bfloat16")  # 384 FLOPs
TF32 = Gemm(8, 4, 2, 9, "float32", compute="tf32")


def attention(direction: str) -> Attention:
    return Attention(direction, 1, 2, 2, 16, 16, 8, 8, False, "bfloat16", "flash")  # type: ignore[arg-type]


def counted(*works: tuple[Signature, Phase]) -> Flops:
    build = TraceBuilder()
    for signature, phase in works:
        build.work(signature, phase=phase)
    return count_flops(build.trace(), Step(slice(None), 0, 0))


def test_recomputation_counts_for_hfu_only() -> None:
    """The same product twice: once for the model, once again for memory's sake."""
    flops = counted((GEMM, Phase.FORWARD), (GEMM, Phase.RECOMPUTE))
    assert (flops.model, flops.executed, flops.recomputed) == (384, 768, 384)


def test_products_of_an_optimizer_are_none_of_the_model() -> None:
    """Muon multiplies matrices to update them."""
    flops = counted((GEMM, Phase.FORWARD), (GEMM, Phase.OPTIMIZER), (GEMM, Phase.OPTIMIZER))
    assert (flops.model, flops.executed, flops.recomputed) == (384, 3 * 384, 0)


def test_attention_backward_is_twice_its_forward_for_the_model() -> None:
    """Five products are executed, of which one only computes the scores again."""
    forward, backward = attention("forward"), attention("backward")
    assert model_flops(backward) == 2 * model_flops(forward)
    assert executed_flops(backward) == pytest.approx(2.5 * executed_flops(forward))


def test_only_products_are_model_flops() -> None:
    """Elementwise work is free, generated kernels count as executed where they say their FLOPs."""
    assert model_flops(Elementwise(8, 8, 8, "float32")) == 0
    fused = Fused("triton_mm", 8, 8, 8, "bfloat16", flops=100)
    assert (model_flops(fused), executed_flops(fused)) == (0, 100)


def test_the_type_with_most_flops_sets_the_peak() -> None:
    """TF32 is a type of its own: its peak is not that of float32."""
    assert counted((GEMM, Phase.FORWARD), (TF32, Phase.FORWARD)).dtype == "tf32"
    assert counted((TF32, Phase.FORWARD), *[(GEMM, Phase.FORWARD)] * 4).dtype == "bfloat16"
    assert counted().dtype == ""


@pytest.mark.parametrize("unknown", [(0, 1.0, 1.0), (5, None, 1.0), (5, 1.0, None)])
def test_utilisation_is_unknown_rather_than_wrong(unknown: tuple[int, float | None, float | None]) -> None:
    """Without FLOPs, time or peak there is no share."""
    assert utilisation(*unknown) is None


def test_utilisation_is_a_share_of_the_peak() -> None:
    """50 FLOPs in 2 s on a device that can do 100 a second."""
    assert utilisation(50, 2.0, 100.0) == 0.25
