"""Capture one plan, with files generated for a framework or with the user's own command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from presim.composition.launch_files.write_files import write_for_model
from presim.errors import InputError
from presim.planner.knobs import CLUSTER, short
from presim.planner.search_request import SearchRequest
from presim.planner.trials import trial_process
from presim.planner.trials.capture_keys import MADE
from presim.planner.trials.placeholders import fill_placeholders, placeholders
from presim.planner.trials.point_evaluator import plan
from presim.planner.trials.trial import Point, Trial, Value
from presim.planner.trials.trial_messages import Reply, Subject
from presim.system.files import make_folder

_LAUNCH_FILES = {"hf": "accelerate"}  # names of `presim compose`, and of launch files


def check_command(command: Sequence[str], point: Point) -> None:
    """Raise if the command has a placeholder that is not a knob of the plans.

    Raises:
        InputError: names the placeholder and the knobs that exist.
    """
    knob_names = _names(point)
    if missing := [name for name in placeholders(command) if name not in knob_names]:
        raise InputError(
            f"the command has {{{missing[0]}}}, which is not a knob of the plans; use one of "
            f"{', '.join(sorted(knob_names))}"
        )


def capture(request: SearchRequest, trial: Trial, folder: Path) -> tuple[str, Reply]:
    """The framework that captured the plan, and the reply."""
    if request.command and trial.figures is not None and trial.figures.source == "captured":
        return "command", Reply(fate="priced", figures=trial.figures)
    if request.confirm_command:
        words = fill_placeholders(request.confirm_command, _names(trial.point), request.words)
        return "command", _evaluated(request, trial.point, words, Path.cwd())
    cluster = {name: trial.point.get(name, request.options.get(name)) for name in (*CLUSTER, "cluster")}
    written = write_for_model(request.subject, plan(trial.point), cluster, folder)
    framework = _LAUNCH_FILES.get(request.framework, request.framework)
    name = next((name for name in written.commands if framework in ("auto", name)), None)
    if name is None:
        return "", Reply(fate="failed", words=_why_not(written.notes, framework))
    (written.folders[name] / MADE).touch()
    return name, _evaluated(request, trial.point, written.commands[name], written.folders[name])


def _names(point: Point) -> dict[str, Value]:
    """Knob values under both full and short names."""
    return {**point, **{short(name): value for name, value in point.items()}}


def _why_not(notes: Sequence[str], framework: str) -> str:
    framework_notes = [note for note in notes if note.startswith(f"No files for {framework}:")]
    return (
        framework_notes or [note for note in notes if note.startswith("No ")] or ["no framework can express the plan"]
    )[0]


def _evaluated(request: SearchRequest, point: Point, words: Sequence[str], folder: Path) -> Reply:
    """The reply of a worker process that captures the command with ``folder`` as working directory."""
    options = {name: value for name, value in request.options.items() if name != "save"}
    job = Subject(command=list(words), options=options)
    make_folder(folder)
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    worker = trial_process.start(job, folder, {"PYTHONPATH": paths})
    try:
        reply = trial_process.ask(worker, point)
    finally:
        trial_process.end([worker])
    return reply or Reply(fate="failed", words="the process that captured it exited")
