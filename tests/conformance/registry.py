"""Every estimator and collective model that is built in; the suites in this folder run over all of them."""

from __future__ import annotations

from collections.abc import Callable

from presim.cost.analytic.estimator import AnalyticEstimator
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.model import CollectiveModel
from presim.cost.price import Estimator
from presim.hardware import Gpu

ESTIMATORS: dict[str, Callable[[Gpu], Estimator]] = {"analytic": AnalyticEstimator}
COLLECTIVE_MODELS: dict[str, Callable[[], CollectiveModel]] = {"hierarchical": Hierarchical}
GPUS = ("h100-sxm", "a100-80gb-sxm", "b200", "v100-32gb-sxm", "l4", "rtx-4090", "rtx-pro-6000", "mi300x", "gb300")
CLUSTERS = ("h100-sxm", "a100-80gb-sxm", "gb200", "l40s", "v100-32gb-sxm", "a40", "mi300x")
