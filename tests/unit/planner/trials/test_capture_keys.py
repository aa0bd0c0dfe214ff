"""A capture's name changes with what it rests on, and with nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from presim.planner.trials.capture_keys import MADE, name_of_capture
from presim.planner.trials.command_evaluator import CommandEvaluator
from presim.planner.trials.point_evaluator import PlanEvaluator
from presim.planner.trials.trial_messages import Reply, Subject
from support.searching import figures

WORDS = ["torchrun", "--nproc-per-node", "8", "train.py", "--config=run.toml", "--tp", "2"]
OPTIONS = {"gpu": "h100-sxm", "steps": 3}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name in ("train.py", "model.py", "run.toml", "data.bin"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_the_same_capture_has_the_same_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = name_of_capture(WORDS, OPTIONS, folder)
    monkeypatch.setenv("COLUMNS", "71")
    (folder / "data.bin").write_text("a script may read it: not known")
    os.utime(folder / "train.py", (1, 1))
    assert before is not None
    assert name_of_capture(WORDS, dict(reversed(OPTIONS.items())), folder) == before


@pytest.mark.parametrize(
    "changed", ["train.py", "model.py", "run.toml", "new.py", "words", "options", "variable", "path"]
)
def test_what_it_rests_on_changes_it(changed: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, words, options = name_of_capture(WORDS, OPTIONS, folder), list(WORDS), dict(OPTIONS)
    if changed == "words":
        words[-1] = "4"
    elif changed == "options":
        options["steps"] = 4
    elif changed == "variable":
        monkeypatch.setenv("NCCL_ALGO", "Ring")
    elif changed == "path":
        (folder / "own").mkdir()
        (folder / "own" / "layers.py").write_text("")
        monkeypatch.setenv("PYTHONPATH", str(folder / "own"))
    else:
        (folder / changed).write_text("changed")
    assert name_of_capture(words, options, folder) != before


def test_a_folder_made_for_a_plan_may_lie_anywhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    for place in ("one", "other"):
        made = tmp_path / place
        made.mkdir()
        (made / "train.py").write_text("pass")
        (made / MADE).touch()
        monkeypatch.setenv("PYTHONPATH", str(made))
        names.append(name_of_capture(["python", "train.py"], OPTIONS, made))
    assert names[0] == names[1]


def test_a_script_beside_too_many_files_has_no_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("presim.planner.trials.capture_keys._MOST_FILES", 2)
    assert name_of_capture(WORDS, OPTIONS, folder) is None


def test_an_equal_command_is_captured_once_and_a_failed_one_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.chdir(folder)
    ran: list[Sequence[str]] = []

    def run(self: CommandEvaluator, words: Sequence[str], given: Mapping[str, object]) -> Reply:
        ran.append(words)
        fails = words[-1] == "3"
        return Reply(fate="failed", words="3 is odd") if fails else Reply(fate="priced", figures=figures())

    monkeypatch.setattr(CommandEvaluator, "run", run)
    job = Subject(command=["python", "train.py", "--tp", "{tp}"], options=OPTIONS)
    for tp in (2, 2, 3, 3, 4):
        PlanEvaluator(job).evaluate({"tp": tp})
    assert [words[-1] for words in ran] == ["2", "3", "3", "4"]
    (folder / "model.py").write_text("another")
    assert PlanEvaluator(job).evaluate({"tp": 2}) == Reply(fate="priced", figures=figures())
    monkeypatch.setenv("PRESIM_CACHE_MB", "0")
    PlanEvaluator(job).evaluate({"tp": 2})
    assert [words[-1] for words in ran] == ["2", "3", "3", "4", "2", "2"]
