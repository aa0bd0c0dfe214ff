"""Saved jobs of the folder, opened as `presim view` shows them: timelines, overview of ranks, power, roofline."""

from __future__ import annotations

import threading

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from presim.app.project import Project
from presim.app.view.panes import Shown
from presim.app.view.server import application, refusal
from presim.errors import InputError
from presim.evaluation.options import EvaluationOptions
from presim.trace.store import JOB_FILE
from presim.verbs.simulate import evaluate_saved

PREFIX = "/view"
_MOST_OPEN = 4  # jobs whose timelines are in memory


class Timelines:
    """An ASGI application: `presim view` of each saved job, below its name. A job is simulated when it is opened."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._open: dict[str, tuple[int, Starlette]] = {}  # by name, with the time at which the job was written
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Saved jobs of the folder."""
        return sorted(path.parent.name for path in self._project.folder.glob(f"*/{JOB_FILE}"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI: answer as the application of the job that the path names."""
        name = scope["path"].removeprefix(f"{PREFIX}/").partition("/")[0]
        try:
            viewer = await run_in_threadpool(self._viewer, name)
        except InputError as error:
            await refusal(str(error), 400)(scope, receive, send)
            return
        await viewer({**scope, "root_path": f"{PREFIX}/{name}"}, receive, send)

    def _viewer(self, name: str) -> Starlette:
        path = self._project.path(name, "") / JOB_FILE
        if not path.is_file():
            raise InputError(f"there is no saved job {name} in {self._project.folder}")
        written_ns = path.stat().st_mtime_ns
        with self._lock:
            if name not in self._open or self._open[name][0] != written_ns:
                evaluation = evaluate_saved(path.parent, EvaluationOptions())
                while len(self._open) >= _MOST_OPEN:
                    self._open.pop(next(iter(self._open)))
                self._open[name] = (written_ns, application([Shown(name, evaluation)]))
            return self._open[name][1]
