"""Budgets: what is read, what is judged, what comes out."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest

from presim.cli import main
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.report.blocks import HeadingBlock, blocks
from presim.result import Result
from presim.studies.gate import budget_files
from presim.studies.gate import text as report
from presim.studies.gate.budget_check import SCHEMA_VERSION, Gate, verdict
from presim.studies.gate.budget_files import JobBudget
from presim.trace import job_store
from presim.trace.job import Job
from presim.units import GIB
from support import workloads


@pytest.fixture(scope="module")
def result() -> Result:
    return evaluate(
        Job.of(workloads.llama_8b(steps=2, layers=3)), choose_cluster(gpu="h100-sxm", world_size=128)
    ).result


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gate") / "job"
    job_store.save([workloads.llama_8b(steps=2, layers=3)], directory)
    return directory


def test_limits_hold_on_both_sides(result: Result) -> None:
    """A job that just keeps a limit passes, one that just breaks it fails, whichever limit it is."""
    assert result.step_time_s is not None
    assert result.mfu is not None
    figures = {"step_time_s": result.step_time_s, "memory_GiB": result.memory.used_bytes / GIB, "mfu": result.mfu}
    for limit, value in figures.items():
        better = 0.99 if limit == "mfu" else 1.01
        kept = verdict(JobBudget(name="a", run=("x",), **{limit: value * better}), result, "", None)
        broken = verdict(JobBudget(name="a", run=("x",), **{limit: value / better}), result, "", None)
        assert kept.passed
        assert not broken.passed
        assert "limit of" in broken.checks[0].sentence


def test_a_growth_is_held_against_the_baseline(result: Result) -> None:
    budget = JobBudget(name="a", run=("x",), step_time_increase=0.05, memory_increase=0.0)
    before = msgspec.structs.replace(result, step_time_s=(result.step_time_s or 0) / 1.2)
    judged = verdict(budget, result, "", before)
    assert [check.passed for check in judged.checks] == [False, True]
    assert judged.checks[0].sentence == "step time changed by +20.0%, above the limit of +5.0%"
    assert judged.memory_change_bytes == 0


def test_without_a_baseline_a_growth_is_no_failure(result: Result) -> None:
    judged = verdict(JobBudget(name="a", run=("x",), step_time_increase=0.05), result, "", None)
    assert judged.passed
    assert judged.checks[0].sentence == "step time has no baseline to be compared with"


def test_a_figure_that_is_not_known_keeps_no_limit(result: Result) -> None:
    unknown = msgspec.structs.replace(result, mfu=None)
    assert not verdict(JobBudget(name="a", run=("x",), mfu=0.1), unknown, "", None).passed


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[job]\n", "is no TOML"),
        ("", "each [[job]] has a name, run or simulate, and limits"),
        ("job = []\n", "has no [[job]]; add one"),
        ('[[job]]\nname = "a"\nrun = ["t.py"]\n', "job 'a' has no limit; set one of step_time_s, memory_GiB"),
        ('[[job]]\nname = "a"\nmfu = 0.3\n', "job 'a' needs either run or simulate, the words of that verb"),
        ('[[job]]\nname = "a"\nrun = ["t.py"]\nmfu = "x"\n', "Expected `float | null`"),
        ('[[job]]\nname = "a"\nrun = ["t.py"]\nmfuu = 1.0\n', "unknown field `mfuu`"),
        ('[[job]]\nname = "../a"\nrun = ["t.py"]\nmfu = 0.3\n', "a job's name is used for its files"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "budgets.toml"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        budget_files.read(path)
    assert str(raised.value).startswith(str(path))
    assert sentence in str(raised.value)


def test_two_jobs_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "budgets.toml"
    path.write_text('[[job]]\nname = "a"\nrun = ["t.py"]\nmfu = 0.3\n' * 2)
    with pytest.raises(InputError, match=r"2 jobs are called 'a'; give each its own name$"):
        budget_files.read(path)


def test_the_command_line_judges_and_writes_what_ci_reads(
    saved: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """One job keeps its budget, one breaks it, one cannot be predicted; a second call has the first for a baseline."""
    path = tmp_path / "budgets.toml"
    path.write_text(
        f'[[job]]\nname = "kept"\nsimulate = ["{saved}"]\nstep_time_s = 1e3\nstep_time_increase = 0.0\n'
        f'[[job]]\nname = "broken"\nsimulate = ["{saved}"]\nstep_time_s = 1e-3\n'
        f'[[job]]\nname = "gone"\nsimulate = ["no-such-job"]\nstep_time_s = 1.0\n'
    )
    files = {name: tmp_path / f"out.{name}" for name in ("json", "markdown", "junit")}
    words = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    keep = tmp_path / "results"
    assert main.run(["gate", str(path), "--keep", str(keep), *words]) == 7
    assert main.run(["gate", str(path), "--baseline", str(keep), *words]) == 7
    out = capsysbinary.readouterr().out.decode()
    assert "✓ kept" in out
    assert "✗ broken" in out
    answer = json.loads(files["json"].read_bytes())
    assert [job["passed"] for job in answer["jobs"]] == [True, False, False]
    assert "no-such-job" in answer["jobs"][2]["failure"]
    assert answer["jobs"][0]["step_time_change_s"] == 0
    assert "1 of 3 jobs keep their budget" in files["markdown"].read_text()
    suite = ElementTree.fromstring(files["junit"].read_bytes())
    assert suite.get("failures") == "2"
    assert sorted(path.name for path in keep.iterdir()) == ["broken.json", "kept.json"]


def test_what_a_script_says_breaks_no_table() -> None:
    """Markdown cells hold no bars or new lines of somebody's error."""
    judged = verdict(JobBudget(name="a", run=("x",), mfu=0.1), None, "a | b\nc", None)
    table = report.markdown(report.Gate(1, False, [judged]))
    assert "a \\| b c" in table


def test_the_fixture_fails_a_test_that_breaks_a_limit(tmp_path: Path) -> None:
    """Here a script that does not exist; the words are those of `presim run`."""
    (tmp_path / "test_it.py").write_text(
        "def test_budget(presim_job):\n    presim_job('--gpu', 'h100-sxm', 'no-such.py', step_time_s=1.0)\n"
        "def test_limit(presim_job):\n    presim_job('x.py', step_time=1.0)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:presim"]
    command += ["-p", "presim.studies.gate.pytest_plugin", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "no-such.py" in done.stdout
    assert "no limit is called step_time; there are step_time_s" in done.stdout


def test_a_page_of_verdicts_names_the_cluster_of_each_job_once(result: Result) -> None:
    judged = verdict(JobBudget(name="a", run=("x",), mfu=0.0), result, "", None)
    answer = Gate(SCHEMA_VERSION, True, [judged, judged, verdict(JobBudget(name="b", run=("x",)), None, "gone", None)])
    title = blocks(report.render(answer))[0]
    assert title == HeadingBlock("2 of 3 jobs keep their budgets", "16 x 8 NVIDIA H100 80GB HBM3", 1)
    assert "| a | 16 x 8 NVIDIA H100 80GB HBM3 |" in report.markdown(answer)
