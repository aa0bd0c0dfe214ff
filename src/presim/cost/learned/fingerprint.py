"""Which formula a correction corrects: a digest of what the analytic estimator says on one GPU for fixed work."""

from __future__ import annotations

import functools
import hashlib

from presim.cost.analytic.estimator import AnalyticEstimator
from presim.hardware import catalogue
from presim.trace.signatures import Attention, Elementwise, Gemm, GroupedGemm, Normalization, Signature, Softmax

_PROBES: tuple[Signature, ...] = (
    *(Gemm(m, 4096, 1024, 1, dtype) for m in (16, 512, 8192) for dtype in ("bfloat16", "float32", "float8_e4m3fn")),
    GroupedGemm(8, 4096, 2048, 1024, "bfloat16"),
    Attention("forward", 2, 32, 8, 4096, 4096, 128, 128, True, "bfloat16", "flash"),
    Attention("backward", 2, 32, 8, 4096, 4096, 128, 128, True, "bfloat16", "cudnn"),
    Attention("forward", 8, 32, 8, 1, 4096, 128, 128, True, "bfloat16", "flash"),
    *(kind(1 << size, 1 << size, 1 << size, "float32") for kind in (Elementwise, Normalization, Softmax) for size in (16, 28)),
)


@functools.cache
def fingerprint(gpu: str) -> str:
    """Sixteen digits; the same as long as constants, formulas and the catalogue's figures are."""
    prices = AnalyticEstimator(catalogue.gpu(gpu)).price(list(_PROBES))
    durations = ",".join(str(price.duration_ns) if price else "-" for price in prices)
    return hashlib.sha256(durations.encode()).hexdigest()[:16]
