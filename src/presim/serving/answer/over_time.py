"""Requests, KV blocks and step times over a run, added up over all engines at the same moments."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.result.serving import LoadOverTime, RequestTimes
from presim.serving.deployments.prediction import Prediction
from presim.serving.engines.simulate_fleet import Served
from presim.serving.fast import serving_state

Floats = NDArray[np.float64]
_POINTS = 160  # of a result's series
_MOST_REQUESTS = 160  # whose times a result lists


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
    replicas = np.unique(steps[:, serving_state.LOG_REPLICA])
    points = int(np.clip(len(steps) // len(replicas), 2, max_points))
    grid = np.linspace(steps[:, serving_state.LOG_START].min(), steps[:, serving_state.LOG_START].max(), points)
    sums = {name: np.zeros(points) for name in ("running", "waiting", "used", "step_ms", "active")}
    for replica in replicas:
        replica_steps = steps[steps[:, serving_state.LOG_REPLICA] == replica]
        last = replica_steps[
            np.maximum(np.searchsorted(replica_steps[:, serving_state.LOG_START], grid, "right") - 1, 0)
        ]
        began = last[:, serving_state.LOG_START] <= grid
        active = began & (last[:, serving_state.LOG_END] >= np.concatenate([grid[:1], grid[:-1]]))
        sums["running"] += np.where(active, last[:, serving_state.LOG_RUNNING], 0)
        sums["waiting"] += np.where(active, last[:, serving_state.LOG_WAITING], 0)
        sums["used"] += np.where(active, last[:, serving_state.LOG_USED], 0)
        sums["step_ms"] += np.where(
            active, (last[:, serving_state.LOG_END] - last[:, serving_state.LOG_START]) / 1e6, 0.0
        )
        sums["active"] += active
    return OverTime(grid / 1e9, len(replicas), **sums)


def load_over_time(prediction: Prediction) -> LoadOverTime | None:
    """Batch, queue, KV cache and step times of all engines over the run; None without a step."""
    steps = prediction.served.steps
    if not len(steps):
        return None
    over = engines(steps, _POINTS)
    busy = over.active > 0
    step_ms = np.divide(over.step_ms, over.active, out=np.zeros(len(busy)), where=busy)
    return LoadOverTime(
        time_s=over.time_s.round(6).tolist(),
        running=over.running.astype(int).tolist(),
        waiting=over.waiting.astype(int).tolist(),
        kv_use=(over.used / _kv_blocks(prediction, over.replicas)).round(6).tolist(),
        step_ms=[value if is_busy else None for value, is_busy in zip(step_ms.round(6).tolist(), busy.tolist())],
    )


def _kv_blocks(prediction: Prediction, logged_engines: int) -> int:
    """Blocks of all engines; of engines that start and stop, of all that ever ran."""
    deployment = prediction.deployment
    blocks = max(deployment.engine.limits.num_gpu_blocks - 1, 1)
    if deployment.life is not None:
        return blocks * logged_engines
    prefill_blocks = deployment.prefill.limits.num_gpu_blocks - 1 if deployment.prefill else 0
    return blocks * deployment.replicas + prefill_blocks * deployment.prefill_replicas


def request_times(served: Served) -> RequestTimes:
    """Times of requests in the order in which they were sent; of many, evenly spread in that order."""
    order = np.argsort(np.where(served.sent < 0, np.iinfo(np.int64).max, served.sent), kind="stable")
    listed = order[:: max(-(-len(order) // _MOST_REQUESTS), 1)]
    columns = (served.sent, served.scheduled, served.first, served.last)
    return RequestTimes(len(order), *(_seconds(column[listed]) for column in columns))


def _seconds(times_ns: NDArray[np.int64]) -> list[float | None]:
    return [round(time_ns / 1e9, 6) if time_ns >= 0 else None for time_ns in times_ns.tolist()]
