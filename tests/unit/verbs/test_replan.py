"""A saved pipeline is evaluated with more stages, or one sentence says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from presim.errors import InputError
from presim.evaluation.options import ReplanOptions
from presim.result import Result
from presim.trace.job import Job
from presim.verbs.replan import replan_and_evaluate
from support.pipelines import Pipeline


@pytest.fixture
def four(tmp_path: Path) -> Path:
    """A saved job of four stages."""
    pipeline = Pipeline(4, 9)
    Job(pipeline.traces(), pipeline.represented()).save(tmp_path / "four")
    return tmp_path / "four"


def replanned(directory: Path, **options: Any) -> Result:
    return replan_and_evaluate(directory, ReplanOptions(**options)).result


def test_a_longer_pipeline_takes_more_ranks_and_a_longer_step(four: Path, tmp_path: Path) -> None:
    """Twelve stages give what a job of twelve stages gives."""
    extended = replanned(four, pipeline=12, micro_batches=40)
    twelve = Pipeline(12, 40)
    Job(twelve.traces(), twelve.represented()).save(tmp_path / "twelve")
    captured = replanned(tmp_path / "twelve")
    assert extended.step_time_s == captured.step_time_s
    assert extended.memory.peak_allocated_bytes == captured.memory.peak_allocated_bytes
    assert any("Extended from 4 to 12 pipeline stages" in note for note in extended.notes)


def test_the_extended_job_can_be_saved(four: Path, tmp_path: Path) -> None:
    replanned(four, pipeline=8, save=str(tmp_path / "eight"))
    again = replanned(tmp_path / "eight", pipeline=12)
    direct = replanned(four, pipeline=12)
    assert again.step_time_s == direct.step_time_s


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"pipeline": 8, "world_size": 24},
            "8 stages of 2 ranks, as captured, take 16 GPUs, and the options ask for 24",
        ),
        ({"pipeline": 6}, "world size 12 is not a multiple of 8 GPUs per node: use --nodes with --gpus-per-node"),
        ({"pipeline": 2}, "the job was captured with 4 pipeline stages and cannot be cut to 2; choose at least 4"),
    ],
)
def test_what_does_not_fit_is_refused(four: Path, options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        replanned(four, **options)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("further", [{"layers": 8}, {"data_parallel": 4}])
def test_one_law_at_a_time(further: dict[str, int]) -> None:
    with pytest.raises(InputError, match="--pp adds stages with the layers and ranks of those captured"):
        ReplanOptions(pipeline=8, **further)
