"""Pictures over time add engines up; they do not jump from one engine to another."""

from __future__ import annotations

import numpy as np

from presim.serving.answer import over_time
from presim.serving.fast import state


def log(replica: int, starts: range, running: int, took: int = 10) -> np.ndarray:
    rows = np.zeros((len(starts), state.LOG), np.int64)
    rows[:, state.LOG_REPLICA] = replica
    rows[:, state.LOG_START] = np.array(starts) * 1_000_000
    rows[:, state.LOG_END] = rows[:, state.LOG_START] + took * 1_000_000
    rows[:, state.LOG_RUNNING] = running
    rows[:, state.LOG_USED] = 5 * running
    return rows


def test_requests_of_two_engines_are_added() -> None:
    """One with 3 and one with 5 requests have 8 at each moment, however their steps are interleaved in the log."""
    steps = np.concatenate([log(0, range(0, 1000, 10), 3), log(1, range(0, 1000, 10), 5)])
    over = over_time.engines(steps, 50)
    assert over.replicas == 2
    assert set(over.running.tolist()) == {8.0}
    assert set(over.used.tolist()) == {40.0}
    assert np.allclose(over.step_ms / over.active, 10.0)


def test_an_engine_that_has_ended_counts_as_empty() -> None:
    steps = np.concatenate([log(0, range(0, 1000, 10), 3), log(1, range(0, 500, 10), 5)])
    over = over_time.engines(steps, 20)
    assert over.running[0] == 8
    assert over.running[-1] == 3
    assert over.active[-1] == 1
