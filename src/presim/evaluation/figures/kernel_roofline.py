"""The roofline of a step: its kernels by arithmetic intensity, with the peak and the bandwidth of memory levels."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from presim.analysis.time.flops import executed_flops
from presim.cost.analytic.memory_bound_kernels import elementwise_constants
from presim.cost.price import PricedTrace
from presim.cost.roofline import moved_bytes
from presim.evaluation.evaluate_traces import Evaluation
from presim.hardware import Gpu
from presim.result.step_figures import MemoryLevel, Roofline, RooflinePoint
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Attention, Gemm, Signature, family

MEMORY, L2_CACHE = "memory", "L2 cache"  # levels of a GPU's memory
_NUMBER = re.compile(r"\.\d+(?=\.|$)")  # of a layer in the name of a module


def kernel_roofline(evaluation: Evaluation) -> Roofline:
    """Kernels by arithmetic intensity and FLOP rate, with the device's peak and the bandwidth of its memory levels.

    A kernel's ``level`` is the L2 cache if the bytes that it moves fit there, else the memory. Kernels without
    arithmetic have no place in the roofline, but a bandwidth.
    """
    priced, flops, gpu = evaluation.priced, evaluation.result.flops, evaluation.cluster.gpu
    used = Counter(priced.trace.columns["signature"][priced.trace.mask(Kind.WORK)].tolist())
    points = [_point(priced, gpu, index, calls) for index, calls in sorted(used.items())]
    levels = [MemoryLevel(MEMORY, gpu.memory_bytes_per_s, "datasheet"), *_reached(gpu)]
    return Roofline([point for point in points if point is not None], flops.peak_per_s, levels, flops.dtype)


def _point(priced: PricedTrace, gpu: Gpu, index: int, calls: int) -> RooflinePoint | None:
    """The calls of one signature; None where it moves no bytes or takes no time."""
    signature, price = priced.trace.signatures[index], priced.prices[index]
    size, flops = moved_bytes(signature), executed_flops(signature)
    if not size or not price.duration_ns:
        return None
    return RooflinePoint(
        name=family(signature),
        shape=shape_of(signature),
        module=_module_of(priced.trace, index),
        intensity=flops / size,
        rate=flops / price.duration_ns * 1e9,
        bytes_per_s=size / price.duration_ns * 1e9,
        seconds=price.duration_ns * calls / 1e9,
        bound=price.bound,
        level=L2_CACHE if size <= gpu.l2_bytes else MEMORY,
    )


def _reached(gpu: Gpu) -> list[MemoryLevel]:
    """Bandwidths that presim's prices of elementwise kernels reach at most: of memory, and of data in the L2 cache."""
    constants = elementwise_constants(gpu)
    reached = gpu.memory_bytes_per_s * constants.efficiency
    origin = "elementwise kernels reach it"
    levels = [MemoryLevel(MEMORY, reached, origin)]
    if gpu.l2_bytes and constants.l2_gain > 1:
        levels.append(MemoryLevel(L2_CACHE, reached * constants.l2_gain, origin))
    return levels


def shape_of(signature: Signature) -> str:
    """The sizes that tell work of one family apart; empty where bytes alone do.

    >>> shape_of(Gemm(m=4096, n=14336, k=4096, batch=1, dtype="bfloat16"))
    '4096 x 4096 x 14336'
    """
    if isinstance(signature, Gemm):
        batch = f"{signature.batch} x " if signature.batch > 1 else ""
        return f"{batch}{signature.m} x {signature.k} x {signature.n}"
    if isinstance(signature, Attention):
        heads = f"{signature.heads} heads of {signature.head_dim}"
        return f"{signature.direction}, {signature.batch} x {signature.q_len} x {signature.kv_len}, {heads}"
    return ""


def _module_of(trace: Trace, signature_index: int) -> str:
    """The module in which work of a signature is done most often, layers alike; empty: in none."""
    scopes = trace.columns["scope"][trace.mask(Kind.WORK) & (trace.columns["signature"] == signature_index)]
    values, counts = np.unique(scopes[scopes >= 0], return_counts=True)
    by_name: Counter[str] = Counter()
    for scope, count in zip(values.tolist(), counts.tolist()):
        by_name[_NUMBER.sub(".*", trace.scopes[scope])] += count
    return max(by_name, key=lambda name: (by_name[name], name), default="")
