"""Requests, KV blocks and step times over a run, added up over all engines at the same moments."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.serving.fast import state

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class OverTime:
    """Sums over all engines, at evenly spaced moments."""

    time_s: Floats
    replicas: int
    running: Floats  # requests
    waiting: Floats
    used: Floats  # blocks of the KV cache
    step_ms: Floats
    active: Floats  # engines that had a step


def engines(steps: NDArray[np.int64], max_points: int) -> OverTime:
    """Sums over the log of steps at up to ``max_points`` moments.

    Each engine counts with its last step that began before a moment. One whose last step ended before the moment before
    it is idle and counts as empty.
    """
    replicas = np.unique(steps[:, state.LOG_REPLICA])
    points = int(np.clip(len(steps) // len(replicas), 2, max_points))
    grid = np.linspace(steps[:, state.LOG_START].min(), steps[:, state.LOG_START].max(), points)
    sums = {name: np.zeros(points) for name in ("running", "waiting", "used", "step_ms", "active")}
    for replica in replicas:
        replica_steps = steps[steps[:, state.LOG_REPLICA] == replica]
        last = replica_steps[np.maximum(np.searchsorted(replica_steps[:, state.LOG_START], grid, "right") - 1, 0)]
        began = last[:, state.LOG_START] <= grid
        active = began & (last[:, state.LOG_END] >= np.concatenate([grid[:1], grid[:-1]]))
        sums["running"] += np.where(active, last[:, state.LOG_RUNNING], 0)
        sums["waiting"] += np.where(active, last[:, state.LOG_WAITING], 0)
        sums["used"] += np.where(active, last[:, state.LOG_USED], 0)
        sums["step_ms"] += np.where(active, (last[:, state.LOG_END] - last[:, state.LOG_START]) / 1e6, 0.0)
        sums["active"] += active
    return OverTime(grid / 1e9, len(replicas), **sums)
