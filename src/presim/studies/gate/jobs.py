"""Runs the jobs of a budget file, each through presim's command line in its own process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from presim.errors import ExitCode, InputError
from presim.report import json
from presim.result import Result
from presim.studies.gate.budget_check import SCHEMA_VERSION, Gate, Verdict, verdict
from presim.studies.gate.budget_files import JobBudget
from presim.studies.gate.child_command import run_child
from presim.system.files import make_folder
from presim.system.files.scratch import temporary_folder
from presim.system.interrupts import caught

Progress = Callable[[str], None]
_LAST_LINES = 3
_NOT_REACHED = "not predicted, because `presim gate` was interrupted before it"


def gate(
    budgets: Sequence[JobBudget],
    folder: Path,
    *,
    baseline: Path | None = None,
    keep: Path | None = None,
    progress: Progress = lambda text: None,
    keeps_finished: bool = False,
) -> Gate:
    """Run all jobs in ``folder`` and compare them with their budgets.

    ``baseline``: a folder with results of an earlier call; ``keep``: where the results go, for the next one.
    ``keeps_finished``: an interrupt gives the verdicts that are there by then, marked as partial; the other jobs fail.

    Raises:
        InputError: the baseline is no folder, or results cannot be written.
    """
    if baseline is not None and not baseline.is_dir():
        raise InputError(f"{baseline} is no folder of results; make one with --keep on the base branch")
    if keep is not None:
        make_folder(keep)
    earlier = [_of_baseline(budget, baseline) for budget in budgets]  # damaged ones are reported first
    verdicts: list[Verdict] = []
    with caught(keeps_finished) as stop:
        for budget, before in zip(budgets, earlier, strict=True):
            progress(f"predicting {budget.name}")
            result, failure = predict(budget, folder)
            if keep is not None and result is not None and not failure:
                json.write(result, keep / f"{budget.name}.json")
            verdicts.append(verdict(budget, result, failure, before))
    stop.unless(verdicts)
    verdicts += [verdict(budget, None, _NOT_REACHED, None) for budget in budgets[len(verdicts) :]]
    return Gate(SCHEMA_VERSION, all(job.passed for job in verdicts), verdicts, partial=stop.is_partial)


def predict(budget: JobBudget, folder: Path) -> tuple[Result | None, str]:
    """The result of one job, and the reason if it failed; both if the script failed or the job does not fit."""
    with temporary_folder("gate") as scratch:
        path = Path(scratch) / "result.json"
        verb, *words = budget.words
        command = [sys.executable, "-m", "presim", verb, "--quiet", "--json", str(path), *words]
        done = run_child(command, cwd=folder)
        result = json.read(path) if path.is_file() else None
    if done.returncode == ExitCode.STANDS and result is not None:
        return result, ""
    last_lines = " ".join(line.strip() for line in done.stderr.splitlines()[-_LAST_LINES:] if line.strip())
    if result is not None and done.returncode == ExitCode.DOES_NOT_FIT:
        return result, result.memory.verdict or "the job does not fit"
    if result is not None and result.error:
        return result, result.error.splitlines()[-1]
    return result, last_lines or f"`presim {verb}` ended with code {done.returncode}"


def _of_baseline(budget: JobBudget, baseline: Path | None) -> Result | None:
    path = None if baseline is None else baseline / f"{budget.name}.json"
    return json.read(path) if path is not None and path.is_file() else None
