"""Mamba's scans by Triton, against the public figures that their constants stand on."""

from __future__ import annotations

import pytest

from presim import hardware
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.trace.signatures import Fused, Kernel, Signature

FORWARD = Fused("_chunk_scan_fwd_kernel", 1_200_000_000, 770_000_000, 1, "bfloat16")


def duration_ns(gpu: str, signature: Signature = FORWARD) -> int:
    (price,) = AnalyticEstimator(hardware.gpu(gpu)).price([signature])
    assert price is not None
    assert price.estimator == "analytic/scan"
    return price.duration_ns


def test_the_forward_pass_takes_what_was_published_for_an_h100() -> None:
    assert duration_ns("h100-sxm") == pytest.approx(1.27e6, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "published", "tolerance"), [("h200", 0.88, 0.06), ("b200", 0.82, 0.08), ("l40s", 4.0, 0.08)]
)
def test_other_gpus_keep_their_published_distance(gpu: str, published: float, tolerance: float) -> None:
    """More bandwidth helps a part of it only."""
    assert duration_ns(gpu) / duration_ns("h100-sxm") == pytest.approx(published, rel=tolerance)


def test_a_kernel_is_known_by_its_bytes_whoever_writes_which() -> None:
    kernel = Kernel("_chunk_state_bwd_db_kernel", (4, 128, 8), (128, 1, 1), bytes=FORWARD.bytes)
    assert duration_ns("gb200", kernel) == duration_ns("gb200")


@pytest.mark.parametrize("name", ["_chunk_state_fwd_kernel", "my_chunk_scan_kernel"])
def test_what_is_no_scan_or_has_no_bytes_is_left_to_the_guess(name: str) -> None:
    moved = 0 if name.startswith("_") else 1 << 30
    assert AnalyticEstimator(hardware.gpu("b200")).price([Kernel(name, (1, 1, 1), (32, 1, 1), bytes=moved)]) == [None]
