"""FLOPs of a step: what the model needs (MFU) and what was executed (HFU).

Products of an optimizer, such as Muon's or Shampoo's, are executed, but are none of the model's.
"""

from __future__ import annotations

import msgspec
import numpy as np

from presim.analysis.time.steps import Step
from presim.result import Flops
from presim.trace.schema import EXPERT_LOAD, Phase, Trace
from presim.trace.signatures import Attention, Convolution, Fused, Gemm, GroupedGemm, Signature, SparseProduct

_PRODUCTS = (Gemm, GroupedGemm, SparseProduct, Attention, Convolution)


def model_flops(signature: Signature) -> int:
    """FLOPs that count for MFU: matrix products (in Triton kernels, too), attention, convolutions.

    Sparse products count the FLOPs of stored values. The backward pass of attention counts twice its forward pass:
    fused kernels that recompute scores do work that the model does not need (as in PaLM, appendix B).
    """
    if isinstance(signature, Attention) and signature.direction == "backward":
        return 2 * msgspec.structs.replace(signature, direction="forward").flops
    if isinstance(signature, Fused):
        return signature.product_flops
    return signature.flops if isinstance(signature, _PRODUCTS) else 0


def executed_flops(signature: Signature) -> int:
    """FLOPs that the device performs in products, and those that generated kernels declare."""
    if isinstance(signature, Fused):
        return max(signature.flops, signature.product_flops)
    return signature.flops if isinstance(signature, _PRODUCTS) else 0


def arithmetic_dtype(signature: Signature) -> str:
    """The data type whose peak rate limits the signature; empty if it has none."""
    if isinstance(signature, (Gemm, Convolution)):
        return "tf32" if signature.compute == "tf32" else signature.dtype
    if isinstance(signature, Fused) and signature.products:
        return max(signature.products, key=lambda product: product[1])[0]
    return signature.dtype if isinstance(signature, (GroupedGemm, SparseProduct, Attention)) else ""


def count_flops(trace: Trace, step: Step) -> Flops:
    """The FLOPs of a step; ``peak_per_s`` is left open.

    Experts count with an even share of the tokens, even if this rank gets more or fewer under uneven routing.
    """
    launch_counts = [(launches(trace, entries), times) for entries, times in step.spans]
    counts, recomputed, optimizer = (
        np.sum([times * part[which] for part, times in launch_counts], axis=0) for which in range(3)
    )
    even = 1e6 / trace.manifest.model.get(EXPERT_LOAD, 10**6)
    model = executed = recomputed_flops = 0
    by_dtype: dict[str, int] = {}
    each_count = zip(trace.signatures, counts.tolist(), recomputed.tolist(), optimizer.tolist())
    for signature, times, repeats, optimizer_times in each_count:
        needed = model_flops(signature) * (times - repeats - optimizer_times)
        model += round(needed * even) if even != 1 and isinstance(signature, GroupedGemm) else needed
        executed += executed_flops(signature) * times
        recomputed_flops += executed_flops(signature) * repeats
        if dtype := arithmetic_dtype(signature):
            by_dtype[dtype] = by_dtype.get(dtype, 0) + executed_flops(signature) * times
    main_dtype = max(by_dtype, key=lambda dtype: (by_dtype[dtype], dtype)) if any(by_dtype.values()) else ""
    return Flops(model=model, executed=executed, recomputed=recomputed_flops, dtype=main_dtype, peak_per_s=None)


def launches(trace: Trace, entries: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number of launches of each signature: in total, in recomputation, in optimizers."""
    signature, phase = trace.columns["signature"][entries].astype(np.int64), trace.columns["phase"][entries]
    has_signature = signature >= 0
    total, recomputed, optimizer = (
        np.bincount(signature[has_signature & is_counted], minlength=len(trace.signatures))
        for is_counted in (True, phase == Phase.RECOMPUTE, phase == Phase.OPTIMIZER)
    )
    return total, recomputed, optimizer


def utilisation(flops: int, step_time_s: float | None, peak_per_s: float | None) -> float | None:
    """Share of the device's peak; None if an argument is unknown."""
    return flops / step_time_s / peak_per_s if flops and step_time_s and peak_per_s else None
