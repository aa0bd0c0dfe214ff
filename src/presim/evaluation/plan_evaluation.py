"""From a graph and a plan to a result, by way of a few of its micro-batches where the others only repeat."""

from __future__ import annotations

import os
from typing import Any

from presim.analysis.repeated_batches import NotRepeatedError, Repeats
from presim.composition.all_memory import Lacks
from presim.composition.compose import Composed, compose
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.plan import Plan
from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.hardware.cluster import Cluster

_SWITCH = "PRESIM_REPEAT"
_IN_ROUNDS = ("interleaved",)
_ROUNDS = (5, 8)  # what is simulated: two of warm-up, and then few until nothing changes
_MAX_SHARE = 0.7  # of the micro-batches: with more than that there is little to gain


def evaluate_plan(
    graph: OperatorGraph,
    plan: Plan,
    cluster: Cluster,
    options: Options | None = None,
    *,
    repeat: bool = True,
    first_only: bool = False,
    **evaluate_options: Any,
) -> Evaluation:
    """Compose, price and simulate; ``evaluate_options`` as `evaluate` takes it.

    A step of many micro-batches is simulated with few of them. Time that provably repeats is counted as often as the
    plan repeats it, so the result is the same, except that memory over time is left out. ``repeat=False``, or
    ``PRESIM_REPEAT=0`` in the environment, simulates all micro-batches. ``first_only`` simulates only the first stage
    of a pipeline, as if it never waited for other stages: its memory is that of the job.

    Raises:
        InputError: the plan is invalid for the model or the cluster.
    """
    for omission in shorter(plan, cluster) if repeat and os.environ.get(_SWITCH) != "0" else ():
        job = compose(graph, plan, cluster, lacks=omission, first_only=first_only)
        ranks = [trace.manifest.rank for trace in job.traces]
        repeats = Repeats(dict(zip(ranks, job.begins)), dict(zip(ranks, job.memory)), omission.period, omission.times)
        try:
            return _evaluated(job, cluster, options, repeats=repeats, **evaluate_options)
        except NotRepeatedError:
            del job, repeats  # a pipeline's are hundreds of MB
    return _evaluated(compose(graph, plan, cluster, first_only=first_only), cluster, options, **evaluate_options)


def _evaluated(job: Composed, cluster: Cluster, options: Options | None, **evaluate_options: Any) -> Evaluation:
    return evaluate(job, cluster, options, **evaluate_options)


def _rounds(ranks: int, micros: int) -> list[Lacks]:
    """Omissions for schedules that run micro-batches in rounds of as many as there are ``ranks``."""
    rounds = micros // ranks
    return [
        Lacks(ranks, rounds - num_rounds)
        for num_rounds in _ROUNDS
        if micros % ranks == 0 and num_rounds < _MAX_SHARE * rounds
    ]


def shorter(plan: Plan, cluster: Cluster) -> list[Lacks]:
    """Numbers of micro-batches to try to leave out, largest first; none for GPipe, which has no steady state."""
    micros = plan.micro_batches(cluster.world_size)
    if plan.pipeline > 1 and plan.order in _IN_ROUNDS:
        return _rounds(plan.pipeline, micros)
    if plan.pipeline > 1 and plan.order != "1f1b":
        return []
    min_micro_batches = plan.pipeline + 4  # a warm-up, and then few until nothing changes
    return [
        Lacks(1, micros - num_micro_batches)
        for num_micro_batches in (min_micro_batches, min_micro_batches + 4)
        if num_micro_batches < _MAX_SHARE * micros
    ]
