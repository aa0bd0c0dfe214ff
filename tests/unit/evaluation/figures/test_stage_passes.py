"""The pipeline diagram shows the passes in the order of the schedule, with their times and the idle share."""

from __future__ import annotations

import pytest

from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.figures.stage_passes import PASSES, stage_passes
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Phase
from presim.trace.signatures import Collective, Elementwise, Gemm
from support.stages import SCHEDULES, two_stages


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return two_stages().evaluation


def test_passes_come_in_the_order_of_the_schedule(evaluation: Evaluation) -> None:
    """Recomputation is part of the backward pass, and passes of a kind are counted."""
    data = stage_passes(evaluation)
    for row, schedule in zip(data.ranks, SCHEDULES, strict=True):
        letters = schedule.split()
        numbers = [letters[: index + 1].count(letter) for index, letter in enumerate(letters)]
        assert [(PASSES[kind][0].upper(), number) for _, _, kind, number in row.passes] == list(zip(letters, numbers))
    assert data.is_even


def test_passes_have_the_times_of_their_kernels_and_do_not_overlap(evaluation: Evaluation) -> None:
    for row in stage_passes(evaluation).ranks:
        timeline = evaluation.timelines[row.rank]
        starts, ends = set(timeline.start_ns.tolist()), set(timeline.end_ns.tolist())
        assert all(start in starts and end in ends for start, end, *_ in row.passes)
        assert all(before[1] <= after[0] for before, after in zip(row.passes, row.passes[1:]))


def test_what_is_not_idle_is_the_time_of_the_passes(evaluation: Evaluation) -> None:
    data = stage_passes(evaluation)
    for row in data.ranks:
        busy = sum(end - start for start, end, *_ in row.passes)
        assert row.idle == pytest.approx(1 - busy / (data.to_ns - data.from_ns), abs=1e-9)
    assert data.ranks[0].idle > 0.1  # the bubble of two stages


def test_a_job_without_messages_has_no_pipeline() -> None:
    build = TraceBuilder(Manifest(1, 0, "h100-sxm", 8, script=""))
    build.work(Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16"), phase=Phase.FORWARD)
    evaluation = evaluate(Job.of(build.trace()), choose_cluster(gpu="h100-sxm", world_size=1))
    assert stage_passes(evaluation).ranks == []


def test_work_on_gradients_behind_the_last_message_belongs_to_the_last_pass() -> None:
    """It has no product of matrices; as a pass of its own it was a ninth of eight micro-batches."""
    groups = (Group("pp", (0, 1), 2),)
    build = TraceBuilder(Manifest(2, 1, "h100-sxm", 8, script="", groups=groups))
    for _ in range(2):
        build.work(Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16"), stream=0, phase=Phase.BACKWARD)
        build.work(Collective("send", 1 << 20, "bfloat16", 0, peer=0), stream=0)
    build.work(Elementwise(1 << 22, 1 << 22, 1 << 20, "float32"), stream=0, phase=Phase.BACKWARD)
    evaluation = evaluate(Job.of(build.trace()), choose_cluster(gpu="h100-sxm", world_size=2))
    (row,) = stage_passes(evaluation).ranks
    assert [number for *_, number in row.passes] == [1, 2]
    assert row.passes[-1][1] == evaluation.timeline.end_ns.max()
