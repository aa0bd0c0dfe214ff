"""What the app knows: the project's results and jobs, as the page lists and opens them."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import presim
from presim.app import words
from presim.app.answers import JobLog, JobStatus, Overview, ProjectRow, QuestionLine, Result
from presim.app.figures import summary_of
from presim.app.forms import Form, form_of
from presim.app.jobs import Jobs, ProjectJob
from presim.app.key_figures import Summary
from presim.app.panes import panes_of
from presim.app.project import NAME_RULE, Project, is_model_config
from presim.app.questions import QUESTIONS, SCRIPT_QUESTION, FormQuestion, question
from presim.app.timelines import Timelines, has_timelines
from presim.app.view.opened import Pane
from presim.app.what_if import RefusedError, WhatIf, last_line, last_sentence
from presim.cli.declared import Values, option_of
from presim.errors import InputError
from presim.evaluation.figures import step_figures
from presim.report import comparison, html
from presim.report.blocks import Block, WaterfallBlock, blocks
from presim.studies.saved_jobs import compare_jobs
from presim.studies.saved_results.read_result import SavedResult, read
from presim.studies.saved_results.show_result import page
from presim.system import command_line
from presim.system.files import make_folder, write_file

_MOST_PARTS = 3  # of the name of an uploaded file
_NICENESS = 10  # of the process that predicts what nobody has asked for yet


class AppState:
    """The state of an app: nothing but its folder and the processes that it has started."""

    def __init__(self, folder: Path, *, allows_scripts: bool = False) -> None:
        """``allows_scripts``: whether the page may start scripts of the user's own."""
        self.project, self._allows_scripts = Project(folder), allows_scripts
        self.jobs = Jobs(self.project)
        self.what_if, self.what_if_ahead = WhatIf(folder), WhatIf(folder, niceness=_NICENESS)
        self.timelines = Timelines(self.project)
        self._naming = threading.Lock()

    def close(self) -> None:
        """End all processes."""
        self.jobs.close()
        self.what_if.close()
        self.what_if_ahead.close()

    def overview(self, *, may_change: bool = True) -> Overview:
        """The folder, the questions, the jobs of this session and the results, newest first."""
        rows = [row for name in self._names() if not self._is_config(row := self.row(name))]
        return Overview(
            str(self.project.folder),
            presim.__version__,
            self.jobs.most_running,
            may_change,
            [QuestionLine(entry.name, entry.title, entry.summary) for entry in self._questions()],
            [self._job(job) for job in reversed(self.jobs.all()) if job.state != "done"],
            self.timelines.lines(),
            [*rows, *map(_unnamed, self.project.odd_names())],
        )

    def form(self, name: str) -> Form:
        """The form of a question, with the folder's own files among the suggestions.

        Raises:
            InputError: there is no such question.
        """
        self.check_allowed(name)
        form, folder = form_of(name), self.project.folder
        rows = [self.row(name) for name in self._names()]
        suggestions = {
            **form.suggestions,
            "model": [*(f"{row.name}.json" for row in rows if self._is_config(row)), *form.suggestions["model"]],
            "job": [f"{row.name}.json" for row in rows if row.kind == "run"],
            "directory": self.timelines.names(),
            "script": sorted(path.name for path in folder.glob("*.py")),
            "files": sorted(path.name for pattern in ("*.json", "*.json.gz") for path in folder.glob(pattern)),
        }
        return msgspec.structs.replace(form, suggestions=suggestions)

    def row(self, name: str) -> ProjectRow:
        """A result in a line; of a file that cannot be read, why."""
        about = ("", "", "", "")
        try:
            origin = self.project.origin(name)
            about = (
                origin.question if self._is_allowed(origin.question) else "",
                origin.command,
                origin.version,
                origin.date,
            )
            kind, summary = self._summary(name)
        except InputError as error:
            return ProjectRow(name, "", *about, Summary("", "", "", []), str(error))
        return ProjectRow(name, kind, *about, summary)

    def start(self, question_name: str, values: Values) -> JobStatus:
        """Queue the command of a form's values.

        Raises:
            RefusedError: the command line refuses them.
        """
        self.check_allowed(question_name)
        if errors := words.errors(question_name, values):
            raise RefusedError(errors)
        with self._naming:  # two questions at a time have two names
            name = self.project.free_name(question_name)
            parts = words.words(question_name, values, f"{name}.json")
            return self._job(self.jobs.start(question_name, parts, name))

    def job(self, name: str) -> JobLog:
        """A job with its log, and by option what its command said if it failed.

        Raises:
            InputError: this session has started no such job.
        """
        job = self.jobs.get(name)
        if job is None:
            raise InputError(f"there is no job {name[:80]!r}; the project page lists all")
        log = self.project.log(name)
        errors = {}
        if job.state == "failed":
            sentence = last_sentence(log)
            errors = {option_of(job.question, sentence, self.project.origin(name).values): sentence}
        return JobLog(**msgspec.structs.asdict(self._job(job)), log=log, errors=errors)

    def result(self, name: str) -> Result:
        """A result with its panes, and the values that its question was asked with.

        Raises:
            InputError: it cannot be read.
        """
        row = self.row(name)
        if row.problem:
            raise InputError(row.problem)
        origin = self.project.origin(name)
        return Result(
            **msgspec.structs.asdict(row),
            panes=list(self._panes(name)),
            is_changeable=bool(origin.question) and bool(question(origin.question).changes),
            has_timelines=has_timelines(origin),
            values=origin.values,
            log=self.project.log(name),
        )

    def pane(self, name: str, pane: str) -> dict[str, Any]:
        """The data of a pane of a result.

        Raises:
            InputError: there is no such result or pane.
        """
        panes = self._panes(name)
        if pane not in panes:
            raise InputError(f"there is no pane {pane[:40]!r} of {name}; there are {', '.join(panes)}")
        return panes[pane]()

    def comparison(self, names: Sequence[str]) -> list[Block]:
        """What changed from the first of several results to each other one, part by part; of steps, else nothing.

        Raises:
            InputError: one of them cannot be read.
        """
        steps = [name for name in names if self._read(name).kind.name == "run"]
        if len(steps) < 2:
            return []
        compared = compare_jobs([self.project.path(name) for name in steps])
        results = [msgspec.structs.replace(entry, label=name) for entry, name in zip(compared.results, steps)]
        changes = [msgspec.structs.replace(entry, label=name) for entry, name in zip(compared.differences, steps[1:])]
        falls = [
            WaterfallBlock(f"{steps[0]} → {entry.label}", bars)
            for entry in changes
            if (bars := comparison.waterfall(results[0], entry))
        ]
        relabelled = msgspec.structs.replace(compared, results=results, differences=changes)
        return [*falls, *blocks(comparison.render(relabelled))]

    def page(self, name: str) -> str:
        """A result as a self-contained HTML page; of a composed one with pipeline, network and roofline."""
        result, origin = self._read(name), self.project.origin(name)
        with command_line.running(origin.command):
            if has_timelines(origin):
                with contextlib.suppress(InputError):  # it cannot be composed again: the result's own page
                    return html.render(result.content, step_figures(self.timelines.evaluation(name)))
            return page(result)

    def remove(self, name: str) -> None:
        """Delete a result that no job is writing, and forget its job."""
        self.jobs.forget(name)
        self.project.remove(name)

    def upload(self, name: str, content: bytes) -> None:
        """Put a file into the folder; ``name``: with the folder of a saved job or profile before it, if it is in one.

        Raises:
            InputError: the name is not that of a file here, or is taken.
        """
        parts = [self.project.checked_name(part) for part in name.split("/")]
        if len(parts) > _MOST_PARTS:
            raise InputError(f"{name[:80]!r} is {len(parts) - 1} folders deep, and at most {_MOST_PARTS - 1} are taken")
        target = self.project.folder.joinpath(*parts)
        if not target.parent.resolve().is_relative_to(self.project.folder.resolve()):
            raise InputError(f"{name[:80]} leads out of the folder")
        if target.exists():
            raise InputError(f"{name} is in the folder already: rename yours, or use that one")
        make_folder(target.parent)
        write_file(target, content)

    def _is_config(self, row: ProjectRow) -> bool:
        """Whether a file that is no result is a model's config, which a question names as its model."""
        return bool(row.problem) and is_model_config(self.project.path(row.name))

    def _questions(self) -> tuple[FormQuestion, ...]:
        return (*QUESTIONS, SCRIPT_QUESTION) if self._allows_scripts else QUESTIONS

    def _is_allowed(self, question_name: str) -> bool:
        return self._allows_scripts or question_name != SCRIPT_QUESTION.name

    def check_allowed(self, question_name: str) -> None:
        """Raise where a question is one that this app does not answer.

        Raises:
            InputError: it starts a script, and that was not allowed.
        """
        if not self._is_allowed(question_name):
            raise InputError(
                "scripts are captured from the command line only (`presim run`), unless the app was started with "
                "`presim app --allow-scripts`"
            )

    def _names(self) -> list[str]:
        """Names of results that no job is writing, newest first."""
        unfinished = {job.name for job in self.jobs.all() if job.state in ("queued", "running")}
        return [name for name in self.project.names() if name not in unfinished and self.project.path(name).is_file()]

    def _read(self, name: str) -> SavedResult:
        path = self.project.path(name)
        if not path.is_file():
            raise InputError(f"there is no result {name} in {self.project.folder}")
        return _read(path, path.stat().st_mtime_ns)

    def _summary(self, name: str) -> tuple[str, Summary]:
        result = self._read(name)
        return result.kind.name, summary_of(result)

    def _panes(self, name: str) -> Mapping[str, Pane]:
        return panes_of(self._read(name))

    def _job(self, job: ProjectJob) -> JobStatus:
        progress = last_line(self.project.log(job.name)) if job.state == "running" else ""
        command = words.command(job.parts)
        return JobStatus(job.name, job.question, command, job.state, job.seconds, job.exit_code, progress)


def _unnamed(name: str) -> ProjectRow:
    """The line of a file that no address can name."""
    problem = f"rename {name}.json: {NAME_RULE}"
    return ProjectRow(name, "", "", "", "", "", Summary("", "", "", []), problem)


@functools.lru_cache(maxsize=128)
def _read(path: Path, modified_ns: int) -> SavedResult:
    """A result, read again after its file has changed."""
    return read(path)
