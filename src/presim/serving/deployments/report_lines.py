"""The answer of `presim deploy` in lines: its first sentences, plans that were simulated, and the estimated front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from presim.result.deployments import DeployResult, SimulatedDeployment
from presim.serving.deployments.sentences import first_lines, latencies
from presim.units import plain

_SHOWN = 8  # deployments of the Pareto front
_FEWER = 3  # deployments that miss the SLO at a load that another serves
_Point = TypeVar("_Point")


def text(answer: DeployResult) -> str:
    """An answer in lines."""
    front, simulated, statistics = answer.pareto, answer.simulated, answer.slo_statistics
    lines = [*first_lines(answer), *answer.would_help]
    if answer.workload is not None:
        lengths = answer.workload.prompt_tokens["mean"], answer.workload.output_tokens["mean"]
        lines.append(f"The requests have {plain(lengths[0], 4)} tokens in and {plain(lengths[1], 4)} out, in the mean.")
    if answer.partial:
        lines.append("Partial: it was interrupted before the end.")
    fewer = [entry for entry in simulated if entry.verdict == "fewer"]
    shown = [entry for entry in simulated if entry.verdict != "fewer"]
    plans = f" of {answer.plans}" if answer.plans is not None else ""
    if answer.unsimulated:
        lines.append(
            f"{answer.unsimulated} plans that may serve more were not simulated, as that would take too long; to try "
            "all, narrow the question, e.g. by --no-disaggregation, fewer --gpu, or --max-gpus."
        )
    if simulated:
        lines.append(
            f"Simulated request by request, {len(simulated)}{plans} plans, at the largest load within the SLO:"
        )
    lines += [_simulated(entry, statistics) for entry in shown]
    if fewer:
        lines.append(f"{len(fewer)} of them do not serve the load of the best of their kind, e.g.")
        lines += [_simulated(entry, statistics) for entry in fewer[:_FEWER]]
    if answer.judged:
        lines.append(
            f"{answer.judged:,} deployments evaluated without queues, {len(front)} on the estimated Pareto front."
        )
    for entry in spread(front, _SHOWN):
        lines.append(
            f"  {entry.tokens_per_s_per_gpu:8,.0f} tokens/s/GPU {entry.tokens_per_s_per_user:6.0f} tokens/s/user"
            f"  TTFT {entry.ttft_ms:6.0f} ms  {entry.deployment}"
        )
    lines += [f"  rejected, {count}: {reason}" for reason, count in sorted(answer.refused.items())]
    return "\n".join([*lines, *answer.not_modelled])


def _simulated(entry: SimulatedDeployment, statistics: dict[str, str]) -> str:
    """A line about a deployment; presim once simulated so many requests in flight, without a rate."""
    if entry.request_rate is None or entry.tokens_per_s_per_gpu is None:
        if entry.reason is not None:
            return f"  not simulated: {entry.deployment}: {entry.reason}"
        return f"  {entry.output_throughput or 0.0:8,.0f} tokens/s  {latencies(entry, statistics)}  {entry.deployment}"
    figures = entry.reason or latencies(entry, statistics)
    verdict = "" if entry.meets_slo or not statistics else ", misses the SLO"
    load = f"{entry.tokens_per_s_per_gpu:8,.0f} tokens/s/GPU {plain(entry.request_rate):>7} requests/s"
    return f"  {load}  {figures}{verdict}  {entry.deployment}"


def spread(front: Sequence[_Point], count: int) -> list[_Point]:
    """A few points spread along the Pareto front, including both ends."""
    if not front:
        return []
    indices = np.unique(np.linspace(0, len(front) - 1, count).round().astype(int))
    return [front[index] for index in indices]
