"""Every estimator and network model that is built in; the suites in this folder run over all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable

from presim import hardware
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.collectives.contended import Contended
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.measured import CollectiveRow, Measured
from presim.cost.collectives.measurements import CollectiveMeasurement
from presim.cost.collectives.network_model import NetworkModel
from presim.cost.collectives.statistical import Statistical, fit_statistical
from presim.cost.learned.learned_estimator import LearnedEstimator
from presim.cost.measured.measured_estimator import MeasuredEstimator
from presim.cost.measured.measured_rows import Measurement
from presim.cost.price import Estimator
from presim.cost.roofline import RooflineEstimator
from presim.hardware import Gpu
from presim.trace.collective import COLLECTIVE_KINDS, Collective
from presim.trace.schema import Group
from presim.trace.signatures import Copy, Elementwise, Gemm, Signature


def _slow_points() -> list[CollectiveMeasurement]:
    """What the slowest cluster of the suite would measure."""
    cluster = hardware.choose_cluster(gpu="a40", nodes=16)
    points = []
    for count in (2, 4, 16, 64):
        for kind in COLLECTIVE_KINDS:
            for power in range(8, 36, 2):
                work = Collective(kind, 1 << power, "float32", 0)
                price = Hierarchical().alone(work, Group("g", tuple(range(count)), count), cluster)
                points.append(CollectiveMeasurement(work, tuple(range(count)), cluster, price.duration_ns * 1e-9, kind))
    return points


@functools.cache
def _statistical() -> Statistical:
    return Statistical(fit_statistical(_slow_points()))


@functools.cache
def _measured() -> Measured:
    """Eight times as slow, so that no placement's wires are beaten."""
    return Measured(
        CollectiveRow(point.collective.kind, len(point.ranks), nodes, point.collective.bytes, point.seconds * 8e6)
        for point in _slow_points()
        for nodes in (1, 2, 4, 8, 16)
    )


NETWORK_MODELS: dict[str, Callable[[], NetworkModel]] = {
    "contended": lambda: Contended(Hierarchical()),
    "hierarchical": Hierarchical,
    "measured": _measured,
    "statistical": _statistical,
}
COVERS_EVERYTHING = ("contended", "hierarchical")


@functools.cache
def _measured_operators(gpu: Gpu) -> MeasuredEstimator:
    """A table of a card that is as fast as the formula says, on a grid that leaves room between its rows."""
    work: list[Signature] = [
        Gemm(m, n, k, 1, "bfloat16", layout="NN")
        for m in (16, 1024, 4096, 16384)
        for n in (1024, 8192)
        for k in (4096,)
    ]
    work += [Copy("d2d", 1 << power) for power in range(0, 34, 2)]
    work += [Elementwise(2 << size, 2 << size, 1 << size, "bfloat16", operator="aten::add") for size in range(4, 30, 2)]
    prices = AnalyticEstimator(gpu).price(work)
    return MeasuredEstimator(
        gpu,
        [
            Measurement(gpu=gpu.id, signature=each, duration_ns=price.duration_ns, source="formula")
            for each, price in zip(work, prices)
            if price is not None
        ],
    )


ESTIMATORS: dict[str, Callable[[Gpu], Estimator]] = {
    "analytic": AnalyticEstimator,
    "learned": LearnedEstimator,
    "measured": _measured_operators,
    "roofline": RooflineEstimator,
}
MONOTONE = ("analytic", "roofline")  # the others follow measurements, which are monotone only roughly
GPUS = ("h100-sxm", "a100-80gb-sxm", "b200", "v100-32gb-sxm", "l4", "rtx-4090", "rtx-pro-6000", "mi300x", "gb300")
CLUSTERS = ("h100-sxm", "a100-80gb-sxm", "gb200", "l40s", "v100-32gb-sxm", "a40", "mi300x")
