"""The analytic estimator: one formula per class of work, calibrated per GPU generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from presim.cost.analytic import (
    accelerator,
    attention,
    convolution,
    copy,
    depthwise,
    gemm,
    memory_bound_kernels,
    packed_weights,
    scan,
    sparse_products,
)
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.analytic.operator_constants import BORROWED, is_measured
from presim.cost.price import Price
from presim.hardware import Gpu
from presim.trace.signatures import (
    Attention,
    Convolution,
    Copy,
    Fused,
    Gemm,
    GroupedGemm,
    MemoryBound,
    Signature,
    SparseProduct,
)

_FAMILIES: tuple[tuple[tuple[type, ...], Callable[[Sequence[Any], Device], list[Price]]], ...] = (
    ((Gemm, GroupedGemm), gemm.price),
    ((SparseProduct,), sparse_products.price),
    ((Attention,), attention.price),
    ((Convolution,), convolution.price),
    ((MemoryBound, Fused), memory_bound_kernels.price),
    ((Copy,), copy.price),
)


class AnalyticEstimator:
    """Prices everything except collectives and kernels of which only the launch is known."""

    name = "analytic"

    def __init__(self, gpu: Gpu, *, burst: bool = False) -> None:
        self._gpu = gpu
        self.device = device_of(gpu, burst=burst)
        widened = self.device.uncertainty_factor * (1.0 if is_measured(self.device.generation) else BORROWED)
        self._shared = 1 - 1 / widened  # part of each uncertainty that is common to all prices of this GPU

    def price(self, signatures: list[Signature]) -> list[Price | None]:
        """One price per signature; None for `Collective` and `Kernel`."""
        if not self._gpu.is_gpu:
            return accelerator.price(signatures, self._gpu, self.device)
        prices: list[Price | None] = [None] * len(signatures)
        indices_by_formula: dict[Callable[[Sequence[Any], Device], list[Price]], list[int]] = {}
        for index, signature in enumerate(signatures):
            formula = _formula(signature)
            if formula is not None:
                indices_by_formula.setdefault(formula, []).append(index)
        for formula, indices in indices_by_formula.items():
            for index, price in zip(indices, formula([signatures[index] for index in indices], self.device)):
                prices[index] = msgspec.structs.replace(
                    price, shared=max(price.shared, price.uncertainty * self._shared)
                )
        return prices


def slowdown_at_work(gpu: Gpu, signatures: list[Signature], busy_prices: Sequence[Price | None]) -> list[float]:
    """Time on a busy GPU over time on an idle one (sustained-clocks.md); 1 without a formula.

    ``busy_prices``: prices by `AnalyticEstimator` on a busy GPU.
    """
    idle_prices = AnalyticEstimator(gpu, burst=True).price(signatures)
    return [
        busy_price.duration_ns / idle_price.duration_ns if busy_price and idle_price else 1.0
        for busy_price, idle_price in zip(busy_prices, idle_prices)
    ]


def _formula(signature: Signature) -> Callable[[Sequence[Any], Device], list[Price]] | None:
    if depthwise.covers(signature):
        return depthwise.price
    if scan.covers(signature):
        return scan.price
    if packed_weights.covers(signature):
        return packed_weights.price
    return next((formula for types, formula in _FAMILIES if isinstance(signature, types)), None)
