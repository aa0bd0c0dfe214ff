"""From a graph and a plan to a result, by way of a few of its micro-batches where the others only repeat."""

from __future__ import annotations

import os
from typing import Any

from presim.analysis.repeated_batches import NotRepeatedError, Repeats
from presim.compose.all_memory import Lacks
from presim.compose.compose import Composed, compose
from presim.compose.plan import Plan
from presim.engine.options import Options
from presim.graph.schema import OperatorGraph
from presim.hardware.cluster import Cluster
from presim.pipeline import Evaluation, evaluate

_SWITCH = "PRESIM_REPEAT"
_IN_ROUNDS = ("interleaved",)
_ROUNDS = (5, 8)  # what is simulated: two of warm-up, and then few until nothing changes
_WORTH = 0.7  # of the micro-batches: with more than that there is little to gain


def evaluate_plan(
    graph: OperatorGraph,
    plan: Plan,
    cluster: Cluster,
    options: Options | None = None,
    *,
    repeat: bool = True,
    first_only: bool = False,
    **more: Any,
) -> Evaluation:
    """Compose, price and simulate; ``more`` as `evaluate` takes it.

    A step of many micro-batches is simulated with few of them, and the time that provably repeats is counted as often
    as the plan asks: the result is the same, but for memory over time, which is left out. ``repeat=False``, or
    ``PRESIM_REPEAT=0`` in the environment, simulates all of them. ``first_only`` does all of this with the first stage
    of a pipeline alone, as if it never waited for the others: its memory is that of the job.

    Raises:
        InputError: the plan cannot be.
    """
    for lacks in shorter(plan, cluster) if repeat and os.environ.get(_SWITCH) != "0" else ():
        job = compose(graph, plan, cluster, lacks=lacks, first_only=first_only)
        ranks = [trace.manifest.rank for trace in job.traces]
        found = Repeats(dict(zip(ranks, job.begins)), dict(zip(ranks, job.memory)), lacks.period, lacks.times)
        try:
            return _evaluated(job, cluster, options, repeats=found, **more)
        except NotRepeatedError:
            del job, found  # a pipeline's are hundreds of MB
    return _evaluated(compose(graph, plan, cluster, first_only=first_only), cluster, options, **more)


def _evaluated(job: Composed, cluster: Cluster, options: Options | None, **more: Any) -> Evaluation:
    return evaluate(job.traces, cluster, options, stands_for=job.stands_for, notes=job.notes, **more)


def _rounds(ranks: int, micros: int) -> list[Lacks]:
    """Of schedules that run micro-batches in rounds: as many together as there are ranks."""
    rounds = micros // ranks
    return [Lacks(ranks, rounds - few) for few in _ROUNDS if micros % ranks == 0 and few < _WORTH * rounds]


def shorter(plan: Plan, cluster: Cluster) -> list[Lacks]:
    """What to try to leave out, most first; nothing of GPipe, which has no state that lasts."""
    micros = plan.micro_batches(cluster.world_size)
    if plan.pipeline > 1 and plan.order in _IN_ROUNDS:
        return _rounds(plan.pipeline, micros)
    if plan.pipeline > 1 and plan.order != "1f1b":
        return []
    least = plan.pipeline + 4  # a warm-up, and then few until nothing changes
    return [Lacks(1, micros - few) for few in (least, least + 4) if few < _WORTH * micros]
