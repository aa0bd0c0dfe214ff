"""Summary of a fleet that changes: engines over time, GPU hours, failures, requests that lost their engine."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.result.serving import FleetFigures
from presim.serving.engines.simulate_fleet import Served
from presim.serving.fast import serving_state

Ints = NDArray[np.int64]
_NAMES = {
    "serving": serving_state.SERVING,
    "starting": serving_state.STARTING,
    "draining": serving_state.DRAINING,
    "failed": serving_state.FAILED,
}
_POINTS = 2000


@dataclasses.dataclass(frozen=True, eq=False)
class Engines:
    """Number of engines in each state between consecutive times, in ns; the last time is the end."""

    time: Ints
    counts: dict[str, Ints]  # by state; one entry fewer than times

    def mean(self, *names: str) -> float:
        """Time-weighted mean number of engines in the given states."""
        span = float(self.time[-1] - self.time[0])
        total = sum(float((self.counts[name] * np.diff(self.time)).sum()) for name in names)
        return total / span if span > 0 else float(sum(self.counts[name][-1] for name in names))


def engines(served: Served) -> Engines:
    """Engine counts from the first sent request to the last token."""
    begin = int(served.sent[served.sent >= 0].min(initial=1 << 62))
    end = max(int(served.last.max(initial=0)), begin)
    events = served.events
    are: dict[int, int] = {}
    times: list[int] = []
    rows: list[list[int]] = []
    for time_ns, engine, new_state in events.tolist():
        if time_ns >= end and rows:
            break
        are[engine] = new_state
        row = [sum(engine_state == value for engine_state in are.values()) for value in _NAMES.values()]
        if times and times[-1] >= max(time_ns, begin):
            rows[-1] = row
        else:
            times.append(max(time_ns, begin))
            rows.append(row)
    columns = np.array(rows, np.int64).reshape(-1, len(_NAMES)).T
    return Engines(np.array([*times, end], np.int64), dict(zip(_NAMES, columns)))


def summary(served: Served, gpus: int) -> dict[str, Any]:
    """Plain figures. ``gpus``: GPUs per engine, which are occupied from an engine's start until it is gone."""
    fleet_engines = engines(served)
    hours = float(fleet_engines.time[-1] - fleet_engines.time[0]) / 3.6e12
    mean = fleet_engines.mean(*_NAMES)
    kinds = served.events[:, 2]
    every = max(1, len(fleet_engines.time) // _POINTS)
    rows = np.stack([fleet_engines.time[:-1] / 1e9, *fleet_engines.counts.values()], axis=1)[::every]
    return {
        "mean_engines": mean,
        "mean_engines_serving": fleet_engines.mean("serving"),
        "most_engines": int(sum(fleet_engines.counts.values()).max()),  # type: ignore[union-attr]  # arrays
        "mean_gpus": mean * gpus,
        "gpu_hours": mean * gpus * hours,
        "failures": int((kinds == serving_state.FAILED).sum()),
        "engine_starts": int((kinds == serving_state.STARTING).sum()),
        "engine_drains": int((kinds == serving_state.DRAINING).sum()),
        "requests_requeued": int(((served.moves > 0) & (served.status != serving_state.LOST)).sum()),
        "requests_lost": int((served.status == serving_state.LOST).sum()),
        "tokens_computed_again": served.redone,
        "engines_over_time": {
            "columns": ["time_s", *_NAMES],
            "rows": [[round(row[0], 6), *map(int, row[1:])] for row in rows.tolist()],
        },
    }


def sentence(fleet: FleetFigures) -> str:
    """The summary as one line."""
    return (
        f"Fleet: {fleet.mean_engines:.3g} engines on average, at most {fleet.most_engines}, "
        f"{fleet.gpu_hours:.3g} GPU hours; {fleet.engine_starts} started, {fleet.engine_drains} drained, "
        f"{fleet.failures} failures; {fleet.requests_requeued:,} requests sent to another engine, "
        f"{fleet.requests_lost:,} lost, {fleet.tokens_computed_again:,} tokens recomputed"
    )
