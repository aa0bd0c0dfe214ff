"""Input of the loop about engines that start, fail and stop (`presim.serving.fast.lifecycle`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.serving.engines.engine import Fleet
from presim.serving.fast import serving_state

_LIFETIMES = 512  # lifetimes drawn per engine; reused after that
_AFTER = {"resume": serving_state.RESUME, "restart": serving_state.RESTART, "lose": serving_state.LOSE}
_ON = {"queue": serving_state.SCALE_QUEUE, "utilization": serving_state.SCALE_USE}


def _ns(seconds: float) -> int:
    return int(min(seconds * 1e9, float(serving_state.FOREVER // 4)))


def engines(fleet: Fleet) -> list[int]:
    """The first replica of each engine; replicas that step together are one engine."""
    firsts: dict[int, int] = {}
    for replica_index, replica in enumerate(fleet.replicas):
        firsts.setdefault(-1 - replica_index if replica.group < 0 else replica.group, replica_index)
    return list(firsts.values())


def program(fleet: Fleet) -> tuple[dict[int, int], NDArray[np.int64]]:
    """Values for `Program.fleet_knobs`, and the drawn lifetimes."""
    life = fleet.life
    if life is None:
        return {}, np.zeros(1, np.int64)
    if life.scaling is not None and {replica.role for replica in fleet.replicas} != {"any"}:
        raise InputError(
            "separate autoscaling of prefill and decode is not modelled; leave out --autoscale or --prefill-replicas"
        )
    values = {
        serving_state.DYNAMIC: 1,
        serving_state.START_NS: _ns(life.start_s),
        serving_state.DETECT_NS: _ns(life.detect_s),
        serving_state.DRAIN_NS: serving_state.FOREVER // 2 if life.drain_s is None else _ns(life.drain_s),
        serving_state.AFTER_FAILURE: _AFTER[life.after_failure],
    }
    lifetimes = np.zeros(1, np.int64)
    if life.mtbf_h is not None:
        values[serving_state.LIFETIMES] = _LIFETIMES
        rng = np.random.default_rng([fleet.seed, len(fleet.replicas)])
        drawn = rng.exponential(life.mtbf_h * 3600e9, len(fleet.replicas) * _LIFETIMES)
        lifetimes = np.clip(drawn, 1.0, float(serving_state.FOREVER // 4)).astype(np.int64)
    if (scaling := life.scaling) is not None:
        values |= {serving_state.SCALE_ON: _ON[scaling.on], serving_state.TARGET: round(scaling.target * 1e6)}
        values |= {serving_state.LEAST: scaling.least, serving_state.MOST: scaling.most}
        values |= {
            serving_state.INTERVAL_NS: _ns(scaling.interval_s),
            serving_state.COOLDOWN_NS: _ns(scaling.cooldown_s),
        }
    return values, lifetimes


def fill(fleet: Fleet, columns: dict[str, Any]) -> None:
    """Fill in the initial state of engines and the time of the first change."""
    counters, life = columns["counters"], fleet.life
    for name in ("change", "fails"):
        columns[name][:] = serving_state.FOREVER
    counters[serving_state.PARKED_HEAD] = counters[serving_state.PARKED_TAIL] = counters[serving_state.LOW_SINCE] = -1
    counters[serving_state.CHANGE] = counters[serving_state.TICK] = serving_state.FOREVER
    if life is None:
        return
    firsts = engines(fleet)
    present = len(firsts) if life.scaling is None else min(life.scaling.least, len(firsts))
    events = [
        [0, first, serving_state.SERVING if engine_number < present else serving_state.ABSENT]
        for engine_number, first in enumerate(firsts)
    ]
    for (_, first, engine_state), end in zip(events, [*firsts[1:], len(fleet.replicas)]):
        columns["up"][first:end] = engine_state
    columns["events"][: 3 * len(events)] = np.array(events).ravel()
    counters[serving_state.EVENTS] = len(events)
    if life.scaling is not None:
        counters[serving_state.TICK] = _ns(life.scaling.interval_s)
    _, lifetimes = program(fleet)
    if life.mtbf_h is not None:
        for first in firsts[:present]:
            columns["fails"][first] = lifetimes[first * _LIFETIMES]
            columns["lives"][first] = 1
    counters[serving_state.CHANGE] = min(int(columns["fails"].min()), int(counters[serving_state.TICK]))
