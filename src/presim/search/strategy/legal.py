"""Which points are plans at all: what can be said before anything is composed."""

from __future__ import annotations

from collections.abc import Mapping

from presim.compose.plan_check import check
from presim.errors import InputError
from presim.hardware.cluster import Cluster
from presim.search.trials.evaluator import plan
from presim.search.trials.trial import Value


def illegal(point: Mapping[str, Value], cluster: Cluster, blocks: int = 0) -> str:
    """Why the plan cannot be, with its equation; empty where it can. ``blocks``: repeated blocks of the model."""
    try:
        check(plan(point), cluster.world_size, blocks)
    except InputError as error:
        return str(error)
    return ""
