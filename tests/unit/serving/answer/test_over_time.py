"""Pictures over time add engines up; they do not jump from one engine to another."""

from __future__ import annotations

import numpy as np
import pytest

from presim.hardware.cluster_choice import choose_cluster
from presim.serving.answer import over_time
from presim.serving.answer.metrics import slo_of
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.prediction import Prediction, predict
from presim.serving.fast import serving_state
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.times import build
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate


@pytest.fixture(scope="module")
def served_load() -> Prediction:
    """More requests than a result lists, on one engine."""
    engine = build(find("llama3-8b"), ServingPlan(), choose_cluster(gpu="h100-sxm", world_size=1))
    load = generate(WorkloadRecipe(400, Lengths(300), Lengths(20), rate=40.0))
    return predict(Deployment(engine, replicas=1), load, slo_of([], 99.0), find_knee=False)


def log(replica: int, starts: range, running: int, took: int = 10) -> np.ndarray:
    rows = np.zeros((len(starts), serving_state.LOG), np.int64)
    rows[:, serving_state.LOG_REPLICA] = replica
    rows[:, serving_state.LOG_START] = np.array(starts) * 1_000_000
    rows[:, serving_state.LOG_END] = rows[:, serving_state.LOG_START] + took * 1_000_000
    rows[:, serving_state.LOG_RUNNING] = running
    rows[:, serving_state.LOG_USED] = 5 * running
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


def test_a_result_s_series_agree_with_its_figures(served_load: Prediction) -> None:
    """The most requests of a batch and the largest use of the cache bound the series, and times come in order."""
    load = over_time.load_over_time(served_load)
    assert load is not None
    inside = served_load.inside
    assert 0 < max(load.running) <= inside["max_batch"]
    assert max(load.waiting) <= inside["max_waiting"]
    assert 0 < max(load.kv_use) <= inside["max_kv_use"] + 1e-6
    columns = over_time.request_times(served_load.served)
    assert columns.of == len(served_load.workload.prompt)
    for moments in zip(columns.sent_s, columns.scheduled_s, columns.first_token_s, columns.last_token_s):
        assert list(moments) == sorted(moments)


def test_of_many_requests_every_nth_is_listed(served_load: Prediction) -> None:
    """Over the whole run: the last of them is among the last that were sent."""
    columns = over_time.request_times(served_load.served)
    every = -(-columns.of // len(columns.sent_s))
    assert len(columns.sent_s) == -(-columns.of // every) <= 160
    sent = np.sort(served_load.served.sent) / 1e9
    assert columns.sent_s == pytest.approx(sent[::every].tolist(), abs=1e-6)
