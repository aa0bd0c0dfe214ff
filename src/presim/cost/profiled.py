"""Prices of work that a profiler measured: on the same hardware as measured, on other hardware scaled.

On other hardware a measured time is multiplied by the ratio of two predictions: of the work there, and on the hardware
of the profile. So what the models do not know of a kernel (its library, its tuning) stays in the measured part. Where
only the name of a kernel is known, its time goes by the memory's bandwidth, or by the arithmetic of its type where the
name says that it is a matrix product or a convolution.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from presim.cost.analytic.device import Device, device_of
from presim.cost.price import Origin, Price, PricedTrace
from presim.errors import InputError
from presim.hardware import Cluster, choose_cluster
from presim.trace.schema import Measured, Trace
from presim.trace.signatures import Collective, Kernel, Signature

if TYPE_CHECKING:
    from presim.cost.chain import Chain

NAME = "profile"
SCALED = "profile, scaled by predictions"
BY_RATE = "profile, scaled by datasheet rates"
UNCERTAINTY = 0.02  # the same kernel in another step of the same run
SCALED_UNCERTAINTY = 0.15  # at least; a ratio of two predictions of one model misses less than either
RATE_UNCERTAINTY = 0.5  # another GPU may run another kernel altogether
_PRODUCT = re.compile(r"gemm|cutlass|nvjet|xmma|wgmma|conv|sgrad|dgrad|wgrad|flash|fmha|sdpa", re.IGNORECASE)
_TYPES = (("fp8", r"e4m3|e5m2|fp8"), ("bf16", r"bf16|bfloat"), ("fp16", r"f16|half|_h_|16816"), ("tf32", r"tf32|1688"))
_FORGOTTEN = "Overlapping kernels slow each other as they did in the profile: that is part of the measured times."


def as_measured(
    trace: Trace, cluster: Cluster, chain: Chain, predicted: Sequence[Price], uncovered: Sequence[int]
) -> PricedTrace:
    """The trace of a profile, priced; ``predicted``: what the chain says of its signatures on the cluster.

    Raises:
        InputError: the profile is damaged, or was recorded on hardware that is not known any more.
    """
    measured = trace.manifest.measured
    assert measured is not None  # the caller looked
    if len(measured.durations_ns) != len(trace.signatures):
        raise InputError(
            f"the profile has {len(measured.durations_ns)} measured times for {len(trace.signatures)} kinds of work; "
            "import it again"
        )
    origin = origin_of(measured)
    if measured.world_size == cluster.world_size and _same_wires(origin, cluster) and origin.gpu == cluster.gpu:
        prices = [_taken(one) for one in measured.durations_ns]
        return PricedTrace(trace, tuple(prices), (), (), (_FORGOTTEN,))
    there = _predictions(trace, chain, origin, cluster)
    devices = device_of(origin.gpu), device_of(cluster.gpu)
    prices = [
        _price(signature, duration, before, after, index in uncovered, devices, origin, cluster)
        for index, (signature, duration, before, after) in enumerate(
            zip(trace.signatures, measured.durations_ns, there, predicted, strict=True)
        )
    ]
    guessed = tuple(index for index, price in enumerate(prices) if price.origin is Origin.GUESSED)
    return PricedTrace(trace, tuple(prices), guessed, (), (_FORGOTTEN,))


def origin_of(measured: Measured) -> Cluster:
    """The cluster that a profile was recorded on.

    Raises:
        InputError: the catalogue does not have it.
    """
    try:
        return choose_cluster(
            gpu=measured.gpu, node=measured.node, fabric=measured.fabric, nodes=measured.nodes,
            gpus_per_node=measured.gpus_per_node,
        )  # fmt: skip
    except InputError as error:
        raise InputError(
            f"the profile {measured.source} was recorded on {measured.gpu}, which cannot be compared with other "
            f"hardware: {error}"
        ) from error


def _same_wires(origin: Cluster, cluster: Cluster) -> bool:
    parts = ("node", "fabric", "nodes", "gpus_per_node")
    links = origin.gpu.nvlink_bytes_per_s == cluster.gpu.nvlink_bytes_per_s
    return links and all(getattr(origin, part) == getattr(cluster, part) for part in parts)


def _predictions(trace: Trace, chain: Chain, origin: Cluster, cluster: Cluster) -> Sequence[Price]:
    """What the models say of the work on the hardware of the profile."""
    from presim.cost.chain import Chain as Models

    there = chain if origin == cluster else Models.default(origin, trace.manifest.nccl)
    highest = max((max(group.ranks) for group in trace.manifest.groups if group.ranks), default=0)
    if highest >= origin.world_size:  # re-scaled to more ranks than were measured: collectives are predicted there
        return chain.price_all(trace.signatures, trace.manifest.groups, cluster)[0]
    return there.price_all(trace.signatures, trace.manifest.groups, origin)[0]


def _taken(duration_ns: int) -> Price:
    return Price(duration_ns, Origin.MEASURED, UNCERTAINTY, NAME)


def _price(
    signature: Signature,
    measured_ns: int,
    before: Price,
    after: Price,
    uncovered: bool,
    devices: tuple[Device, Device],
    origin: Cluster,
    cluster: Cluster,
) -> Price:
    if isinstance(signature, Collective):
        if origin.world_size != cluster.world_size:
            return after
        if _same_wires(origin, cluster):
            return _taken(measured_ns)
    elif origin.gpu == cluster.gpu:
        return _taken(measured_ns)
    if uncovered or isinstance(signature, Kernel):
        factor, bound = _ratio_of_rates(signature, *devices)
        duration = max(1, math.ceil(measured_ns * factor))
        return Price(duration, Origin.GUESSED, RATE_UNCERTAINTY, BY_RATE, bound, shared=0.2, longer=1.0)
    ratio = after.duration_ns / max(before.duration_ns, 1)
    uncertainty = max(SCALED_UNCERTAINTY, after.uncertainty)
    found = max(1, math.ceil(measured_ns * ratio))
    return Price(found, after.origin, uncertainty, SCALED, after.bound, after.shared, after.longer)


def _ratio_of_rates(signature: Signature, before: Device, after: Device) -> tuple[float, str]:
    """By which factor a kernel of which the name is known takes longer, and what it is taken to be bound by."""
    name = getattr(signature, "name", "")
    if _PRODUCT.search(name):
        precision = next((kind for kind, text in _TYPES if re.search(text, name, re.IGNORECASE)), "fp32")
        return before.peak(precision) / after.peak(precision), "compute"
    if getattr(signature, "flops", 0) and not getattr(signature, "bytes", 0):  # an execution trace's: of no known type
        return before.peak("bf16") / after.peak("bf16"), "compute"
    return before.memory_Bps / after.memory_Bps, "memory"
