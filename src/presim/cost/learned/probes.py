"""Fixed pieces of work whose analytic prices identify the formula that a correction was fitted to."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.hardware import catalogue
from presim.trace.signatures import Attention, Elementwise, Gemm, GroupedGemm, Normalization, Signature, Softmax

PROBES: tuple[Signature, ...] = (
    *(Gemm(m, 4096, 1024, 1, dtype) for m in (16, 512, 8192) for dtype in ("bfloat16", "float32", "float8_e4m3fn")),
    GroupedGemm(8, 4096, 2048, 1024, "bfloat16"),
    Attention("forward", 2, 32, 8, 4096, 4096, 128, 128, True, "bfloat16", "flash"),
    Attention("backward", 2, 32, 8, 4096, 4096, 128, 128, True, "bfloat16", "cudnn"),
    Attention("forward", 8, 32, 8, 1, 4096, 128, 128, True, "bfloat16", "flash"),
    *(
        kernel_type(1 << size, 1 << size, 1 << size, "float32")
        for kernel_type in (Elementwise, Normalization, Softmax)
        for size in (16, 28)
    ),
)


_TOLERANCE = 3e-3  # vector units of other machines round differently


@functools.cache
def probe_ns(gpu: str) -> tuple[int, ...]:
    """Durations of the probes. They change only with the constants, the formulas and the catalogue."""
    prices = AnalyticEstimator(catalogue.gpu(gpu), burst=True).price(list(PROBES))
    return tuple(price.duration_ns if price else 0 for price in prices)


def agree_within_rounding(durations_ns: Sequence[int], other_durations_ns: Sequence[int]) -> bool:
    """Whether two results agree, except for rounding."""
    return len(durations_ns) == len(other_durations_ns) and all(
        abs(a - b) <= _TOLERANCE * max(a, b) + 1 for a, b in zip(durations_ns, other_durations_ns)
    )
