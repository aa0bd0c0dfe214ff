"""Prices from a profile: as measured on the same hardware, scaled on other hardware.

On other hardware, a measured time is multiplied by the ratio of two predictions: for that hardware, and for the
hardware of the profile. The effects of a kernel's library and tuning stay in the measured part. If only a kernel's name
is known, its time scales with memory bandwidth, or with the peak of its type if the name denotes a matrix product or a
convolution.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Protocol

from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.price import Origin, Price, PricedTrace
from presim.errors import InputError
from presim.hardware import Cluster, choose_cluster
from presim.trace.schema import Group, Measured, Trace
from presim.trace.signatures import Collective, Kernel, Signature

NAME = "profile"
SCALED = "profile, scaled by predictions"
BY_RATE = "profile, scaled by datasheet rates"
UNCERTAINTY = 0.02  # spread of a kernel between steps of one run
SCALED_UNCERTAINTY = 0.15  # minimum; the ratio of two predictions has a smaller error than either
RATE_UNCERTAINTY = 0.5  # another GPU may run a different kernel
_PRODUCT = re.compile(r"gemm|cutlass|nvjet|xmma|wgmma|conv|sgrad|dgrad|wgrad|flash|fmha|sdpa", re.IGNORECASE)
_TYPES = (("fp8", r"e4m3|e5m2|fp8"), ("bf16", r"bf16|bfloat"), ("fp16", r"f16|half|_h_|16816"), ("tf32", r"tf32|1688"))
_FORGOTTEN = "Slowdown of overlapping kernels is part of the measured times."


class Predictor(Protocol):
    """What prices signatures without a measurement: `presim.cost.chain.Chain`."""

    def price_all(
        self, signatures: Sequence[Signature], groups: Sequence[Group], cluster: Cluster
    ) -> tuple[list[Price], list[int]]:
        """Prices of signatures, and the indices of those that no estimator covers."""
        ...


def as_measured(
    trace: Trace,
    cluster: Cluster,
    chain: Predictor,
    predicted: Sequence[Price],
    uncovered: Sequence[int],
    chain_on: Callable[[Cluster], Predictor],
) -> PricedTrace:
    """The priced trace of a profile. ``predicted``: prices of its signatures on the cluster by the chain.

    ``chain_on`` returns the chain of another cluster, for what the profile was recorded on.

    Raises:
        InputError: the profile is damaged, or was recorded on hardware that the catalogue lacks.
    """
    measured = trace.manifest.measured
    assert measured is not None  # checked by the caller
    if len(measured.durations_ns) != len(trace.signatures):
        raise InputError(
            f"the profile has {len(measured.durations_ns)} measured times for {len(trace.signatures)} kinds of work; "
            "import it again"
        )
    origin = origin_of(measured)
    if measured.world_size == cluster.world_size and _same_wires(origin, cluster) and origin.gpu == cluster.gpu:
        prices = [
            _measured_price(*measured_and_predicted)
            for measured_and_predicted in zip(measured.durations_ns, predicted, strict=True)
        ]
        return PricedTrace(trace, tuple(prices), (), (), (_FORGOTTEN,))
    origin_prices = _predictions(trace, chain if origin == cluster else chain_on(origin), chain, origin, cluster)
    devices = device_of(origin.gpu), device_of(cluster.gpu)
    prices = [
        _price(signature, duration, before, after, index in uncovered, devices, origin, cluster)
        for index, (signature, duration, before, after) in enumerate(
            zip(trace.signatures, measured.durations_ns, origin_prices, predicted, strict=True)
        )
    ]
    guessed = tuple(index for index, price in enumerate(prices) if price.origin is Origin.GUESSED)
    return PricedTrace(trace, tuple(prices), guessed, (), (_FORGOTTEN,))


def origin_of(measured: Measured) -> Cluster:
    """The cluster on which a profile was recorded.

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


def _predictions(
    trace: Trace, origin_chain: Predictor, chain: Predictor, origin: Cluster, cluster: Cluster
) -> Sequence[Price]:
    """Predicted prices on the hardware of the profile."""
    highest = max((max(group.ranks) for group in trace.manifest.groups if group.ranks), default=0)
    if highest >= origin.world_size:  # re-scaled to more ranks than were measured, so collectives are predicted there
        return chain.price_all(trace.signatures, trace.manifest.groups, cluster)[0]
    return origin_chain.price_all(trace.signatures, trace.manifest.groups, origin)[0]


def _measured_price(duration_ns: int, predicted: Price) -> Price:
    """The measured prices, with the bottleneck of their predictions."""
    return Price(duration_ns, Origin.MEASURED, UNCERTAINTY, NAME, predicted.bound)


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
            return _measured_price(measured_ns, before)
    elif origin.gpu == cluster.gpu:
        return _measured_price(measured_ns, before)
    if uncovered or isinstance(signature, Kernel):
        factor, bound = _ratio_of_rates(signature, *devices)
        duration = max(1, math.ceil(measured_ns * factor))
        return Price(duration, Origin.GUESSED, RATE_UNCERTAINTY, BY_RATE, bound, shared=0.2, longer=1.0)
    ratio = after.duration_ns / max(before.duration_ns, 1)
    uncertainty = max(SCALED_UNCERTAINTY, after.uncertainty)
    duration_ns = max(1, math.ceil(measured_ns * ratio))
    return Price(duration_ns, after.origin, uncertainty, SCALED, after.bound, after.shared, after.longer)


def _ratio_of_rates(signature: Signature, before: Device, after: Device) -> tuple[float, str]:
    """Time ratio of a kernel known only by name, and its assumed bottleneck."""
    name = getattr(signature, "name", "")
    if _PRODUCT.search(name):
        precision = next((kind for kind, text in _TYPES if re.search(text, name, re.IGNORECASE)), "fp32")
        return before.peak(precision) / after.peak(precision), "compute"
    if getattr(signature, "flops", 0) and not getattr(signature, "bytes", 0):  # an execution trace's: of no known type
        return before.peak("bf16") / after.peak("bf16"), "compute"
    return before.memory_Bps / after.memory_Bps, "memory"
