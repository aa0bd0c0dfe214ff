"""From a graph and a plan to a result, by way of a few of its micro-batches where the others only repeat."""

from __future__ import annotations

from typing import Any

from presim.compose.all_memory import Lacks
from presim.compose.compose import Composed, compose
from presim.compose.plan import Plan
from presim.engine.options import Options
from presim.graph.schema import OperatorGraph
from presim.hardware.cluster import Cluster
from presim.pipeline import Evaluation, NotRepeatedError, Repeats, evaluate

_ORDERS = {"1f1b": 1, "interleaved": 0, "zero-bubble": 0}  # micro-batches of a period; 0: as many as ranks
_WORTH = 0.7  # of the micro-batches: with more than that there is little to gain


def evaluate_plan(
    graph: OperatorGraph,
    plan: Plan,
    cluster: Cluster,
    options: Options | None = None,
    *,
    repeat: bool = True,
    **more: Any,
) -> Evaluation:
    """Compose, price and simulate; ``more`` as `evaluate` takes it.

    A step of many micro-batches is simulated with few of them, and the time that provably repeats is counted as often
    as the plan asks: the result is the same. ``repeat=False`` simulates all of them.

    Raises:
        InputError: the plan cannot be.
    """
    for lacks in _shorter(plan, cluster) if repeat else ():
        job = compose(graph, plan, cluster, lacks=lacks)
        ranks = [trace.manifest.rank for trace in job.traces]
        found = Repeats(dict(zip(ranks, job.begins)), dict(zip(ranks, job.memory)), lacks.period, lacks.times)
        try:
            return _evaluated(job, cluster, options, repeats=found, **more)
        except NotRepeatedError:
            continue
    return _evaluated(compose(graph, plan, cluster), cluster, options, **more)


def _evaluated(job: Composed, cluster: Cluster, options: Options | None, **more: Any) -> Evaluation:
    return evaluate(job.traces, cluster, options, stands_for=job.stands_for, notes=job.notes, composed=True, **more)


def _shorter(plan: Plan, cluster: Cluster) -> list[Lacks]:
    """What to try to leave out, most first."""
    order = plan.order if plan.pipeline > 1 or plan.virtual > 1 else "1f1b"
    if order not in _ORDERS:
        return []
    all_, period = plan.micro_batches(cluster.world_size), _ORDERS[order] or plan.pipeline
    least = plan.pipeline + 3 if period == 1 else 4 * period
    found = []
    for micros in (least, 2 * least):
        few = micros + (all_ - micros) % period
        if few < _WORTH * all_:
            found.append(Lacks(period, (all_ - few) // period))
    return found
