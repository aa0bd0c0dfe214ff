"""Estimates what a simulation of a deployment takes, before it starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.system import budgets
from presim.system.budgets import Budget, Estimate

if TYPE_CHECKING:
    from presim.serving.deployments.deployment import Deployment
    from presim.serving.workloads.generate import WorkloadRecipe
    from presim.serving.workloads.workload import Workload

# Measured with Llama-3-8B on H100s at 100,000 and 400,000 requests, 1 to 1,024 engines, 2 cores of an Intel Xeon that
# others used, all runs of `predict` together. Estimates were 0.6 to 1.6 times the measured times.
_TOKEN_S = 0.7e-6
_STEP_S = 6e-6
_BLOCK_S = 0.6e-6
_EVENT_S = 5e-6  # a decision of the autoscaler, or a failure
_REQUEST_BYTES = 700
_STEP_BYTES = 460
_BLOCK_BYTES = 80
_STEP_TIME_S = 0.01  # of an engine: how many requests share a step is guessed by it
_LONGEST_S = 4e9  # of a simulation: 64 bits hold 292 years in ns
_WHAT_ELSE = "--budget, e.g. --budget 2h,32GiB"


@dataclasses.dataclass(frozen=True)
class _Load:
    requests: int
    prompt_tokens: float
    output_tokens: float
    seconds: float  # from the first arrival to the last; 0: all at once
    concurrency: int


def check_recipe(recipe: WorkloadRecipe, deployment: Deployment, budget: Budget) -> None:
    """Check a workload before it is generated.

    Raises:
        InputError: it would take more than the budget, or last longer than a simulation can.
    """
    conversations = -(-recipe.requests // recipe.turns)
    seconds = conversations / recipe.rate if recipe.rate else 0.0
    seconds += (recipe.turns - 1) * recipe.think_s
    tokens = recipe.requests * (recipe.prompt.mean + recipe.shared_prefix)
    output = recipe.requests * recipe.output.mean
    _check(_Load(recipe.requests, tokens, output, seconds, recipe.concurrency), deployment, budget)


def check_workload(workload: Workload, deployment: Deployment, budget: Budget) -> None:
    """Check a workload that was read.

    Raises:
        InputError: it would take more than the budget, or last longer than a simulation can.
    """
    seconds = float(workload.arrival_ns.max(initial=0)) / 1e9
    prompt, output = float(workload.prompt.sum()), float(workload.output.sum())
    _check(_Load(len(workload), prompt, output, seconds, workload.concurrency), deployment, budget)


def _check(load: _Load, deployment: Deployment, budget: Budget) -> None:
    if load.seconds > _LONGEST_S:
        raise InputError(
            f"{load.requests:,} requests would arrive over {budgets.duration(load.seconds)}, more than the "
            f"{budgets.duration(_LONGEST_S)} of a simulation: raise --rate, or lower --requests, --turns or --think"
        )
    engines = deployment.replicas + deployment.prefill_replicas
    blocks = engines * deployment.engine.limits.num_gpu_blocks
    events = _events(load, deployment)
    steps = _steps(load, deployment)
    of_load = Estimate(
        load.requests,
        "requests",
        load.output_tokens * _TOKEN_S + steps * _STEP_S,
        load.requests * _REQUEST_BYTES + steps * _STEP_BYTES,
    )
    of_engines = Estimate(
        engines, f"engines with {blocks // engines:,} KV blocks each", blocks * _BLOCK_S, blocks * _BLOCK_BYTES
    )
    of_events = Estimate(events, "decisions of the autoscaler and failures of engines", events * _EVENT_S)
    budgets.check(of_engines, budget, _WHAT_ELSE)
    budgets.check(of_events, budget, "raise --scale-interval or --mtbf")
    budgets.check(of_load, budget, _WHAT_ELSE)


def _steps(load: _Load, deployment: Deployment) -> float:
    """Steps of all engines: prompts are read in chunks, and the requests that run share the others."""
    limits = deployment.engine.limits
    batch_size = _smallest((limits.max_num_seqs, load.concurrency / deployment.replicas, _running(load, deployment)))
    return load.output_tokens / max(batch_size, 1.0) + load.prompt_tokens / limits.max_num_batched_tokens


def _running(load: _Load, deployment: Deployment) -> float:
    """Requests that an engine runs at a time, by Little's law; 0: all are there at once."""
    if not load.seconds:
        return 0.0
    return load.output_tokens / load.seconds * _STEP_TIME_S / deployment.replicas


def _smallest(limits: Sequence[float]) -> float:
    """The smallest of those that limit."""
    return min(limit for limit in limits if limit)


def _events(load: _Load, deployment: Deployment) -> int:
    life = deployment.life
    if life is None:
        return 0
    seconds = max(load.seconds, load.output_tokens * _STEP_TIME_S / deployment.replicas / 100)
    decisions = seconds / life.scaling.interval_s if life.scaling is not None else 0.0
    failures = deployment.replicas * seconds / (life.mtbf_h * 3600) if life.mtbf_h is not None else 0.0
    return round(decisions + failures)
