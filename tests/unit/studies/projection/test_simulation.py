"""Simulated training runs agree with the closed forms where these apply."""

from __future__ import annotations

import dataclasses
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.studies.projection import simulation
from presim.studies.projection.closed_form import best_interval, daly_interval, expected_s, young_interval
from presim.studies.projection.simulation import NeverEndsError, TrainingRun, train

DAY = 86400.0
JOB = TrainingRun(
    work_s=20 * DAY, interval_s=1800.0, checkpoint_s=60.0, restart_s=600.0, mtbf_s=3 * 3600.0, nodes=2048
)  # fmt: skip


@pytest.mark.parametrize(
    ("checkpoint_s", "restart_s", "mtbf_s", "interval_s"),
    [(60, 600, 3 * 3600, 1800), (300, 600, 24 * 3600, 7000), (300, 600, 6 * 3600, 3400), (30, 60, 1800, 330)],
)
def test_the_mean_of_many_runs_is_dalys_expectation(
    checkpoint_s: float, restart_s: float, mtbf_s: float, interval_s: float
) -> None:
    job = dataclasses.replace(JOB, checkpoint_s=checkpoint_s, restart_s=restart_s, mtbf_s=mtbf_s, interval_s=interval_s)
    totals = [train(job, seed).total_s for seed in range(100)]
    error = statistics.stdev(totals) / math.sqrt(len(totals))
    expected = expected_s(job.work_s, interval_s, checkpoint_s, restart_s, mtbf_s)
    assert statistics.mean(totals) == pytest.approx(expected, abs=4 * error)


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_dalys_interval_matches_his_paper(hours: float, minutes: float) -> None:
    """Figures 3 to 5: dumps of 5 minutes."""
    assert daly_interval(300, hours * 3600) / 60 == pytest.approx(minutes, abs=0.5)
    assert best_interval(300, 600, hours * 3600) / 60 == pytest.approx(minutes, abs=0.5)


@given(st.floats(1, 600), st.floats(0, 1200), st.floats(600, 1e6))
def test_no_interval_is_better_than_the_best(checkpoint_s: float, restart_s: float, mtbf_s: float) -> None:
    best = best_interval(checkpoint_s, restart_s, mtbf_s)
    least = expected_s(1.0, best, checkpoint_s, restart_s, mtbf_s)
    for other in (best / 2, best * 2, young_interval(checkpoint_s, mtbf_s), daly_interval(checkpoint_s, mtbf_s)):
        assert least <= expected_s(1.0, max(other, 1e-3), checkpoint_s, restart_s, mtbf_s) * (1 + 1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.floats(3600, 3 * DAY),
    st.integers(0, 4),
    st.sampled_from((0, 8, 128)),
    st.floats(0, 1),
)
def test_all_work_is_done_and_no_time_is_negative(
    seed: int, mtbf_s: float, spares: int, replicas: int, hardware_share: float
) -> None:
    job = dataclasses.replace(
        JOB, mtbf_s=mtbf_s, spares=spares, replicas=replicas, hardware_share=hardware_share, repair_s=DAY / 4
    )
    spent = train(job, seed)
    assert spent.work_s == pytest.approx(job.work_s)
    assert min(dataclasses.astuple(spent)) >= 0
    assert spent == train(job, seed)


def test_without_failures_only_checkpoints_are_added() -> None:
    spent = train(dataclasses.replace(JOB, mtbf_s=1e15), 0)
    assert (spent.failures, spent.lost_s, spent.restarts_s) == (0, 0, 0)
    assert spent.checkpoints_s == pytest.approx(JOB.work_s / JOB.interval_s * JOB.checkpoint_s, rel=0.01)


def test_spares_and_elastic_restarts_shorten_a_run_with_broken_nodes() -> None:
    breaking = dataclasses.replace(JOB, hardware_share=0.75, repair_s=DAY)
    alone = train(breaking, 1)
    spared = train(dataclasses.replace(breaking, spares=40), 1)
    elastic = train(dataclasses.replace(breaking, replicas=128), 1)
    assert alone.waiting_s > 0
    assert spared.waiting_s == 0
    assert elastic.waiting_s == 0
    assert elastic.slower_s > 0
    assert spared.total_s < elastic.total_s < alone.total_s


def test_an_endless_training_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MAX_FAILURES", 1000)
    with pytest.raises(NeverEndsError):
        train(dataclasses.replace(JOB, mtbf_s=60.0, restart_s=3600.0), 0)
