"""Saved jobs and composed results of the folder, as `presim view` shows them: timelines, ranks, power, roofline."""

from __future__ import annotations

import dataclasses
import html
import subprocess
import threading
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

from presim.app import words
from presim.app.answers import SavedJobLine
from presim.app.jobs import presim_command
from presim.app.project import NAME_RULE, Project, ResultOrigin
from presim.app.view.panes import Shown
from presim.app.view.server import application, refusal
from presim.app.what_if import last_sentence
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import EvaluationOptions
from presim.studies.saved_results.read_result import read
from presim.system.files.scratch import temporary_folder
from presim.trace.job_store import JOB_FILE, incompleteness
from presim.verbs.simulate import evaluate_saved

PREFIX = "/view"
_MOST_OPEN = 4  # jobs whose timelines are in memory


@dataclasses.dataclass(frozen=True)
class _OpenJob:
    """A job in memory."""

    written_ns: int  # when its file was written
    shown: Shown
    viewer: Starlette


class Timelines:
    """An ASGI application: `presim view` of each saved job, below its name. A job is simulated when it is opened."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._open: dict[str, _OpenJob] = {}  # by name
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Saved jobs of the folder that can be opened."""
        return [line.name for line in self.lines() if not line.problem]

    def lines(self) -> list[SavedJobLine]:
        """Saved jobs of the folder, each with the reason if it cannot be opened."""
        folders = sorted(path.parent for path in self._project.folder.glob(f"*/{JOB_FILE}"))
        return [SavedJobLine(folder.name, self._problem(folder)) for folder in folders]

    def _problem(self, folder: Path) -> str:
        try:
            self._project.checked_name(folder.name)
        except InputError:
            return f"rename the folder {folder.name}: {NAME_RULE}"
        return incompleteness(folder)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI: answer as the application of the job that the path names."""
        name = scope["path"].removeprefix(f"{PREFIX}/").partition("/")[0]
        try:
            viewer = await run_in_threadpool(self._viewer, name)
        except InputError as error:
            is_page = "text/html" in Headers(scope=scope).get("accept", "")  # opened in a tab of its own
            answer = HTMLResponse(_refused_page(str(error)), 400) if is_page else refusal(str(error), 400)
            await answer(scope, receive, send)
            return
        await viewer({**scope, "root_path": f"{PREFIX}/{name}"}, receive, send)

    def evaluation(self, name: str) -> Evaluation:
        """The simulation of a saved job or a composed result.

        Raises:
            InputError: there is no such job, or it cannot be composed again.
        """
        return self._opened(name).shown.evaluation

    def _viewer(self, name: str) -> Starlette:
        return self._opened(name).viewer

    def _opened(self, name: str) -> _OpenJob:
        path = self._project.path(name, "") / JOB_FILE
        is_saved = path.is_file()
        if not is_saved:
            path = self._project.path(name)
        if not path.is_file():
            raise InputError(f"there is no saved job and no result {name} in {self._project.folder}")
        written_ns = path.stat().st_mtime_ns
        with self._lock:
            if name not in self._open or self._open[name].written_ns != written_ns:
                if is_saved:
                    shown = Shown(name, evaluate_saved(path.parent, EvaluationOptions()))
                else:
                    shown = _composed_again(self._project, name)
                while len(self._open) >= _MOST_OPEN:
                    self._open.pop(next(iter(self._open)))
                self._open[name] = _OpenJob(written_ns, shown, application([shown]))
            return self._open[name]


def _refused_page(sentence: str) -> str:
    text = html.escape(sentence)
    style = ":root { color-scheme: light dark } body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem }"
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>presim: no timelines</title>"
        f"<style>{style}</style><h1>No timelines</h1><p role='alert'>{text}</p></html>"
    )


def has_timelines(origin: ResultOrigin) -> bool:
    """Whether the command of a result can be asked for the traces that it simulated."""
    return origin.question == "compose"


def _composed_again(project: Project, name: str) -> Shown:
    """A composed result's job, composed once more to be saved: a result alone has no timelines.

    Raises:
        InputError: it was not composed here, cannot be composed any more, or is another job now.
    """
    origin = project.origin(name)
    if not has_timelines(origin):
        raise InputError(f"{name} has no timelines: they are of saved jobs, and of results that `compose` wrote here")
    with temporary_folder("timelines") as folder:
        job = Path(folder, "job")
        parts = [*words.words(origin.question, {**origin.values, "save": str(job)}), "-q"]
        ended = subprocess.run(presim_command(parts), cwd=project.folder, capture_output=True, text=True, check=False)
        if not (job / JOB_FILE).is_file():
            raise InputError(f"{name} cannot be composed again: {last_sentence(ended.stdout + ended.stderr)}")
        evaluation = evaluate_saved(job, EvaluationOptions())
    expected_s, step_s = read(project.path(name)).content.step_time_s, evaluation.result.step_time_s
    if step_s != expected_s:  # what-if options that a saved job does not hold, or another version of presim
        raise InputError(
            f"{name} has no timelines: its saved job takes {step_s} s and the result {expected_s} s, by its what-if "
            f"options or another version of presim; `presim compose … --perfetto FILE` writes the timeline"
        )
    return Shown(name, evaluation)
