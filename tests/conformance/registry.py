"""Every estimator and collective model that is built in; the suites in this folder run over all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable

from presim import hardware
from presim.cost.analytic.estimator import AnalyticEstimator
from presim.cost.collectives.fit import Point
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.measured import Measured, Row
from presim.cost.collectives.model import CollectiveModel
from presim.cost.collectives.statistical import Statistical, fit_statistical
from presim.cost.learned.estimator import LearnedEstimator
from presim.cost.price import Estimator
from presim.hardware import Gpu
from presim.trace.schema import Group
from presim.trace.signatures import COLLECTIVE_KINDS, Collective


def _slow_points() -> list[Point]:
    """What the slowest cluster of the suite would measure, so that no cluster's wires are beaten by it."""
    cluster = hardware.choose_cluster(gpu="a40", nodes=16)
    points = []
    for count in (2, 4, 16, 64):
        for kind in COLLECTIVE_KINDS:
            for power in range(8, 36, 2):
                work = Collective(kind, 1 << power, "float32", 0)
                price = Hierarchical().price(work, Group("g", tuple(range(count)), count), cluster)
                points.append(Point(work, tuple(range(count)), cluster, price.duration_ns * 1e-9, kind))
    return points


@functools.cache
def _statistical() -> Statistical:
    return Statistical(fit_statistical(_slow_points()))


@functools.cache
def _measured() -> Measured:
    return Measured(
        Row(point.collective.kind, len(point.ranks), nodes, point.collective.bytes, point.seconds * 1e6)
        for point in _slow_points()
        for nodes in (1, 2, 4, 8, 16)
    )


COLLECTIVE_MODELS: dict[str, Callable[[], CollectiveModel]] = {
    "hierarchical": Hierarchical,
    "measured": _measured,
    "statistical": _statistical,
}
COVERS_EVERYTHING = ("hierarchical",)
ESTIMATORS: dict[str, Callable[[Gpu], Estimator]] = {"analytic": AnalyticEstimator, "learned": LearnedEstimator}
MONOTONE = ("analytic",)  # the others follow measurements, which are monotone only roughly
GPUS = ("h100-sxm", "a100-80gb-sxm", "b200", "v100-32gb-sxm", "l4", "rtx-4090", "rtx-pro-6000", "mi300x", "gb300")
CLUSTERS = ("h100-sxm", "a100-80gb-sxm", "gb200", "l40s", "v100-32gb-sxm", "a40", "mi300x")
