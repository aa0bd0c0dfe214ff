"""Cases that name a command or a saved job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from presim.evaluation.options import RunOptions
from presim.hardware.cluster import Cluster
from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.commands import Commands
from presim.studies.validation.runs import Providers, Settings, UnknownCaseError
from presim.studies.validation.solve import solve
from presim.trace import job_store
from presim.trace.job import Job
from presim.trace.schema import Trace
from presim.units import GIB
from presim.verbs import run as running
from support import workloads

ROW = {"id": "x", "gpu": "H100", "nodes": "16", "gpus_per_node": "8", "step_time_s": "0.1"}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return workloads.llama_8b(steps=2, layers=3)


@pytest.fixture
def commands(trace: Trace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """The commands that are captured, each of which does what ``trace`` has."""
    captured: list[tuple[str, ...]] = []

    def capture(command: Sequence[str], target: Cluster, options: RunOptions, *, stdout: int | None = None) -> Job:
        captured.append(tuple(command))
        return Job((trace,), {0: [*range(1, 128)]})

    monkeypatch.setattr(running, "capture_command", capture)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    return captured


def provider(captures: Path | None = None) -> Providers:
    return Providers((Commands(Settings(captures=captures)),))


def test_a_command_is_captured_on_the_cluster_of_its_row(commands: list[tuple[str, ...]]) -> None:
    found = solve(Case({**ROW, "command": "train.py --name 'two words'"}), provider())
    assert commands == [("train.py", "--name", "two words")]
    assert (found.outcome, found.reason) == ("ok", "")
    assert found.step_time_s


def test_captures_are_stored_in_the_named_folder(commands: list[tuple[str, ...]], tmp_path: Path) -> None:
    case = Case({**ROW, "command": "train.py"})
    first, again = (solve(case, provider(tmp_path / "kept")) for _ in range(2))
    assert len(commands) == 1
    assert (again.step_time_s, again.peak_mem_gib) == (first.step_time_s, first.peak_mem_gib)
    solve(Case({**ROW, "command": "train.py", "gpu": "H200"}), provider(tmp_path / "kept"))
    assert len(commands) == 2


def test_a_saved_job_is_simulated_on_its_own_cluster_unless_the_row_names_another(trace: Trace, tmp_path: Path) -> None:
    job_store.save([trace], tmp_path / "job", stands_for={0: [*range(1, 128)]})
    row = {"id": "x", "gpu": "", "job": str(tmp_path / "job")}
    own, named, other = (
        solve(Case({**row, **cells}), provider()) for cells in ({}, {**ROW}, {"gpu": "A100 80GB", "peak_mem_gib": "9"})
    )
    assert own.step_time_s == named.step_time_s
    assert own.memory_bytes > 70 * GIB
    assert other.step_time_s is not None
    assert own.step_time_s is not None
    assert other.step_time_s > own.step_time_s


def test_the_measured_rank_has_the_memory_of_its_representative(trace: Trace, tmp_path: Path) -> None:
    job_store.save([trace], tmp_path / "job", stands_for={0: [*range(1, 128)]})
    row = {"id": "x", "gpu": "", "job": str(tmp_path / "job"), "rank_or_stage": "rank 77"}
    assert solve(Case(row), provider()).peak_mem_gib


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"command": "a.py", "job": "b"}, "the case names both a command and a saved job; leave one cell empty"),
        ({"command": "train.py 'x"}, 'command = "train.py \'x" cannot be read: No closing quotation'),
        ({"command": "train.py", "gpu": ""}, "gpu is empty"),
        ({"command": "train.py", "nodes": "many"}, "nodes = 'many' is not a whole number"),
        ({"job": "nowhere"}, "nowhere holds no trace"),
    ],
)
def test_cases_that_cannot_run_have_a_reason(
    cells: dict[str, str], reason: str, commands: list[tuple[str, ...]]
) -> None:
    with pytest.raises(CannotBuildError) as raised:
        Commands(Settings()).prepare(Case({**ROW, **cells}))
    assert str(raised.value).startswith(reason)


def test_other_cases_are_left_to_other_providers() -> None:
    with pytest.raises(UnknownCaseError):
        Commands(Settings()).prepare(Case(ROW))
