"""Jobs, and their evaluation with what is kept between calls."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

import presim
from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.evaluation.evaluator import Evaluator
from presim.hardware import choose_cluster
from presim.report import json
from presim.trace.coverage import RankCoverage
from presim.trace.job import Job
from support import workloads

CLUSTER = choose_cluster(gpu="h100-sxm", nodes=16, gpus_per_node=8)
OTHER = choose_cluster(gpu="h200", nodes=16, gpus_per_node=8)


@pytest.fixture(scope="module")
def job() -> Job:
    trace = workloads.llama_8b(steps=3, layers=3)
    return Job((trace,), {0: [*range(1, 128)]}, RankCoverage(), ("A note.",))


def test_the_answer_is_the_pipelines_at_every_call(job: Job) -> None:
    evaluator = Evaluator()
    for cluster, options in ((CLUSTER, None), (OTHER, None), (CLUSTER, Options(host_factor=3.0)), (CLUSTER, None)):
        wanted = evaluate(Job(list(job.traces), stands_for=job.stands_for, notes=job.notes), cluster, options).result
        assert json.encode(evaluator.evaluate(job, cluster, options)) == json.encode(wanted)


def test_clusters_that_differ_in_one_figure_have_prices_of_their_own(job: Job) -> None:
    evaluator = Evaluator()
    slower = msgspec.structs.replace(
        CLUSTER, gpu=msgspec.structs.replace(CLUSTER.gpu, memory_bytes_per_s=CLUSTER.gpu.memory_bytes_per_s / 2)
    )
    times = [evaluator.evaluate(job, cluster).step_time_s or 0.0 for cluster in (CLUSTER, slower, CLUSTER)]
    assert times[0] == times[2] < times[1]


def test_jobs_beyond_those_that_are_kept_are_prepared_again(job: Job) -> None:
    evaluator = Evaluator(jobs=1)
    others = [dataclasses.replace(job, traces=(workloads.llama_8b(steps=3, layers=layers),)) for layers in (2, 3)]
    first = [evaluator.evaluate(other, CLUSTER).step_time_s for other in others]
    assert [evaluator.evaluate(other, CLUSTER).step_time_s for other in others] == first


def test_a_saved_job_is_the_same_job(job: Job, tmp_path: Path) -> None:
    job.save(tmp_path / "job")
    again = presim.Job.load(tmp_path / "job")
    assert again.stands_for == {0: [*range(1, 128)]}
    assert again.notes == ("A note.",)
    assert presim.evaluate(again, CLUSTER).step_time_s == presim.evaluate(job, CLUSTER).step_time_s
    assert presim.simulate(tmp_path / "job").step_time_s == presim.evaluate(job, CLUSTER).step_time_s


def test_a_cluster_of_another_size_is_refused(job: Job) -> None:
    with pytest.raises(InputError, match=r"^the trace is of a job of world size 128, but nodes x GPUs are 1 x 8 = 8;"):
        presim.evaluate(job, choose_cluster(gpu="h100-sxm", nodes=1))
