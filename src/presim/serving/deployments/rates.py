"""The largest rates of a deployment: what it sustains, and what it sustains within an SLO."""

from __future__ import annotations

import dataclasses

import numpy as np

from presim.serving.answer import metrics
from presim.serving.answer.metrics import Slo
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.fast.serving_state import LOG_END, LOG_PREFILL, LOG_TOKENS
from presim.serving.workloads.workload import Workload

STEADY = 0.98  # of the sustainable load, from which on a queue has no bound
_WAVES = 6  # times that all seats are taken while the largest throughput is measured
_MOST_PROBED = 3000  # requests of a run that looks for the largest rate
_FEWEST_PROBED = 1500  # and of one that looks for the largest throughput, however few run at a time


def sustainable_rate(deployment: Deployment, workload: Workload, seed: int = 0) -> float | None:
    """Largest throughput in requests/s: all requests arrive at once; counted over the middle half of completions."""
    fleet = dataclasses.replace(deployment, life=None).fleet(seed=seed)  # all engines, no failures
    seats = _WAVES * sum(replica.limits.max_num_seqs for replica in fleet.replicas)
    count = min(seats, max(_WAVES * _running(deployment, workload), _FEWEST_PROBED), 8 * _MOST_PROBED)
    served = simulate(workload.first(_MOST_PROBED).at_once(count), fleet)
    finish_times = np.sort(served.last[served.finished])
    if len(finish_times) < 8:
        return None
    first, last = len(finish_times) // 4, 3 * len(finish_times) // 4
    span = float(finish_times[last] - finish_times[first]) / 1e9
    if span <= 0:
        return None
    if deployment.engine.plan.drafting is None:
        decoded = _decoded(served, int(finish_times[first]), int(finish_times[last]))
        # The first token of a request is of its prompt's step.
        decoded_per_request = float(served.workload.output[served.finished].mean()) - 1
        if decoded and decoded_per_request > 0:
            return decoded / decoded_per_request / span
    return (last - first) / span


def _running(deployment: Deployment, workload: Workload) -> int:
    """Requests that engines which decode run at a time at most, whatever prompts share."""
    limits = deployment.engine.limits
    shared = float((workload.segment_first[1:] - workload.segment_first[:-1]).mean() * workload.segment_tokens)
    tokens = float(workload.prompt.mean() + workload.output.mean() / 2)  # a request has half of its output, in the mean
    room = (limits.num_gpu_blocks - 1) // limits.pages(max(round(tokens - shared), 1))
    return min(limits.max_num_seqs, max(room, 1)) * deployment.replicas * deployment.engine.plan.dp


def _decoded(served: Served, begin_ns: int, end_ns: int) -> int:
    """Tokens of decodes between two times: unlike requests that end, they come evenly where requests began together."""
    step_end_ns = served.steps[:, LOG_END]
    steps = served.steps[(step_end_ns > begin_ns) & (step_end_ns <= end_ns)]
    return int((steps[:, LOG_TOKENS] - steps[:, LOG_PREFILL]).sum())


def largest_rate(
    deployment: Deployment, workload: Workload, slo: Slo, sustainable: float, rate: float, seed: int = 0
) -> float | None:
    """The knee: the largest sustained rate at which the requests, sped up or slowed down, meet the SLO; else None.

    Beyond the sustainable rate a load meets the SLO only as long as it is short: its queue grows.
    """
    some = workload.first(_MOST_PROBED)

    def keeps(candidate_rate: float) -> bool:
        return metrics.meets(simulate(some.scaled(candidate_rate / rate), deployment.fleet(seed=seed)), slo)

    low, high = 0.0, STEADY * sustainable
    if keeps(high):
        return high
    for _ in range(9):
        middle = (low + high) / 2
        if keeps(middle):
            low = middle
        else:
            high = middle
    return low or None
