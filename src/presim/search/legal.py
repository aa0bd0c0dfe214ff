"""Which points are plans at all: what can be said before anything is composed."""

from __future__ import annotations

from collections.abc import Mapping

from presim.errors import InputError
from presim.graph.plan import Plan, check
from presim.hardware.cluster import Cluster
from presim.search.evaluator import plan
from presim.search.knobs import fields
from presim.search.trial import Value


def illegal(point: Mapping[str, Value], cluster: Cluster) -> str:
    """Why the plan cannot be, with its equation; empty where it can."""
    try:
        mine = plan(point)
        check(mine, cluster.world_size)
    except InputError as error:
        return str(error)
    return _batch(point, mine, cluster.world_size)


def _batch(point: Mapping[str, Value], mine: Plan, world_size: int) -> str:
    """A plan without a field for the global batch has one micro-batch a step."""
    wanted = point.get("global_batch")
    if wanted is None or "global_batch" in fields():
        return ""
    data = mine.data(world_size)
    if data * mine.micro_batch == wanted:
        return ""
    return (
        f"global batch: micro_batch x data-parallel ranks = {mine.micro_batch} x {data} = {mine.micro_batch * data}, "
        f"not {wanted}; composed plans have no gradient accumulation"
    )
