"""GPU time of a step that no work fills, by cause, and tokens of samples that are fresh enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from presim.post_training.rl_job import Placement
from presim.post_training.rl_loop import TrainingStep
from presim.post_training.rl_phases import Span

_TRANSFERS_AND_WAITS = (
    "waiting for rollouts", "waiting for weights", "waiting for scores", "waiting for updates", "weight sync",
    "controller", "reward", "reload", "offload",
)  # fmt: skip
_ENGINES_DONE = "engines are done before the last response"
_UNEVEN_RANKS = "ranks wait for longer sequences on others"
_TOOLS = "engines wait for their environment"
_FREE_WORKERS = {"environment": "environment waits for calls", "judge": "judge waits for responses"}


class IdleTime(msgspec.Struct, frozen=True):
    """GPU time of an average step in which a pool waits."""

    pool: str
    cause: str
    seconds: float  # of an average GPU of the pool
    share: float  # of the step's time on all GPUs


class Goodput(msgspec.Struct, frozen=True):
    """Throughput of training on samples that are at most so many steps old."""

    staleness: int
    tokens_per_s_per_gpu: float  # of prompts and responses
    share: float  # of trained tokens


def pool_gpus(placement: Placement) -> dict[str, int]:
    """GPUs by the name of their pool."""
    gpus = {placement.training_pool: placement.train_gpus}
    if placement.engine_gpus > 0:
        gpus["rollout"] = placement.engine_gpus
    gpus |= {pool.label: pool.gpus for pool in placement.scoring_pools}
    return gpus | {pool.label: pool.gpus for pool in placement.service_pools}


def idle_times(
    spans: Sequence[Span], steps: int, step_s: float, placement: Placement, engine_idle_share: float,
    tool_wait_share: float = 0.0,
) -> list[IdleTime]:  # fmt: skip
    """Causes of idle GPUs in the average of so many steps, the largest first.

    ``engine_idle_share``: of rollouts, in which an average rank of the engines has nothing to generate;
    ``tool_wait_share``: of that, while tools answer.
    """
    gpus = pool_gpus(placement)
    seconds: dict[tuple[str, str], float] = {}
    for span in spans:
        cause, idle_s = _UNEVEN_RANKS, span.waiting_s
        cause = _FREE_WORKERS.get(span.phase, cause)
        if span.phase == "rollout":
            cause, idle_s = _ENGINES_DONE, (engine_idle_share - tool_wait_share) * span.seconds
            waiting_s = tool_wait_share * span.seconds
            seconds[span.pool, _TOOLS] = seconds.get((span.pool, _TOOLS), 0.0) + waiting_s / steps
        elif span.phase in _TRANSFERS_AND_WAITS:
            cause, idle_s = span.phase, span.seconds
        seconds[span.pool, cause] = seconds.get((span.pool, cause), 0.0) + idle_s / steps
    total_s = step_s * placement.gpus
    times = [
        IdleTime(pool, cause, idle_s, idle_s * gpus[pool] / total_s)
        for (pool, cause), idle_s in seconds.items()
        if idle_s > 0 and gpus[pool]
    ]
    return sorted(times, key=lambda idle: (-idle.share, idle.pool, idle.cause))


def goodput(steps: Sequence[TrainingStep], step_s: float, gpus: int) -> list[Goodput]:
    """Throughput at each limit of staleness up to the largest that a group has."""
    staleness = np.concatenate([step.staleness for step in steps])
    tokens = np.concatenate([step.group_tokens for step in steps])
    total_tokens = max(int(tokens.sum()), 1)
    fresh_tokens = [int(tokens[staleness <= limit].sum()) for limit in range(int(staleness.max()) + 1)]
    elapsed_s = len(steps) * step_s * gpus
    return [Goodput(limit, count / elapsed_s, count / total_tokens) for limit, count in enumerate(fresh_tokens)]


def by_cause(times: Sequence[IdleTime]) -> Mapping[str, float]:
    """Shares of all GPU time by cause, over all pools, the largest first."""
    shares: dict[str, float] = {}
    for idle in times:
        shares[idle.cause] = shares.get(idle.cause, 0.0) + idle.share
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
