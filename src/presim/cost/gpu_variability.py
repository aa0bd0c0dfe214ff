"""Slowdown by the slowest GPU of a job.

GPUs of one model differ by a few percent in what they reach under load: chips, cooling and power are not all alike
(Sinha et al., Not All GPUs Are Created Equal, SC 2022: 8 % between the GPUs of a cluster on average). Ranks meet in
every collective, so the slowest of them sets the time, and the more there are the slower it is.

>>> [round(slowdown(count), 3) for count in (1, 8, 64, 512)]
[1.0, 1.0, 1.027, 1.048]
"""

from __future__ import annotations

import statistics

import msgspec

from presim.cost.price import Price
from presim.hardware.constants import value
from presim.trace.signatures import Attention, Convolution, Gemm, GroupedGemm, Signature

SPREAD = value("gpu.arithmetic_spread")
_CALIBRATED = round(value("gpu.calibrated_ranks"))


def slowdown(ranks: int) -> float:
    """Time on the slowest of ``count`` GPUs over time on the slowest of eight.

    The expected largest of n normal deviates, after Blom (1958): the normal quantile of (n - 3/8) / (n + 1/4).
    """
    return 1 + SPREAD * (_largest(max(ranks, _CALIBRATED)) - _largest(_CALIBRATED))


def on_slowest_gpu(signature: Signature, price: Price, factor: float) -> Price:
    """The price on the slowest GPU. Only arithmetic depends on its clocks; memory and links do not."""
    if factor == 1 or not isinstance(signature, (Gemm, GroupedGemm, Attention, Convolution)):
        return price
    return msgspec.structs.replace(price, duration_ns=round(price.duration_ns * factor))


def _largest(count: int) -> float:
    return statistics.NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
