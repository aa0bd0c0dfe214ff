"""The pipeline diagram shows the passes in the order of the schedule, with their times and the idle share."""

from __future__ import annotations

import pytest

from presim.app.view.panes import Shown
from presim.app.view.pipeline import PASSES, pipeline
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Manifest, Phase
from presim.trace.signatures import Gemm
from support.stages import SCHEDULES, two_stages


@pytest.fixture(scope="module")
def shown() -> Shown:
    return two_stages()


def test_passes_come_in_the_order_of_the_schedule(shown: Shown) -> None:
    """Recomputation is part of the backward pass, and passes of a kind are counted."""
    data = pipeline(shown)
    for row, schedule in zip(data["ranks"], SCHEDULES, strict=True):
        letters = schedule.split()
        numbers = [letters[: index + 1].count(letter) for index, letter in enumerate(letters)]
        assert [(PASSES[kind][0].upper(), number) for _, _, kind, number in row["passes"]] == list(
            zip(letters, numbers)
        )
    assert data["is_even"]


def test_passes_have_the_times_of_their_kernels_and_do_not_overlap(shown: Shown) -> None:
    for row in pipeline(shown)["ranks"]:
        timeline = shown.evaluation.timelines[row["rank"]]
        starts, ends = set(timeline.start_ns.tolist()), set(timeline.end_ns.tolist())
        assert all(start in starts and end in ends for start, end, *_ in row["passes"])
        assert all(before[1] <= after[0] for before, after in zip(row["passes"], row["passes"][1:]))


def test_what_is_not_idle_is_the_time_of_the_passes(shown: Shown) -> None:
    data = pipeline(shown)
    for row in data["ranks"]:
        busy = sum(end - start for start, end, *_ in row["passes"])
        assert row["idle"] == pytest.approx(1 - busy / (data["to"] - data["from"]), abs=1e-9)
    assert data["ranks"][0]["idle"] > 0.1  # the bubble of two stages


def test_a_job_without_messages_has_no_pipeline() -> None:
    build = TraceBuilder(Manifest(1, 0, "h100-sxm", 8, script=""))
    build.work(Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16"), phase=Phase.FORWARD)
    evaluation = evaluate(Job.of(build.trace()), choose_cluster(gpu="h100-sxm", world_size=1))
    assert pipeline(Shown("one", evaluation))["ranks"] == []
