"""Check which points are legal plans, before anything is composed."""

from __future__ import annotations

from collections.abc import Mapping

from presim.composition.plan_check import check
from presim.errors import InputError
from presim.hardware.cluster import Cluster
from presim.planner.trials.evaluator import plan
from presim.planner.trials.trial import Value


def illegal_reason(point: Mapping[str, Value], cluster: Cluster, blocks: int = 0) -> str:
    """Why a plan is illegal, with the failing equation; empty if legal. ``blocks``: repeated blocks of the model."""
    try:
        check(plan(point), cluster.world_size, blocks)
    except InputError as error:
        return str(error)
    return ""
