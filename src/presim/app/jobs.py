"""Jobs: commands that run in processes of their own, as many at a time as there are cores, with a log each.

A job is queued, then running, then done (it wrote a result), failed or cancelled.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

from presim.app.project import Project

State: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled"]
_PATIENCE_S = 5.0  # a cancelled process may write what it has finished
_COLUMNS = "100"  # of the reports in logs
Command: TypeAlias = Callable[[list[str]], list[str]]


def presim_command(parts: list[str]) -> list[str]:
    """The command of this interpreter's presim."""
    return [sys.executable, "-m", "presim", *parts]


@dataclasses.dataclass
class ProjectJob:
    """A command with its state."""

    name: str
    question: str
    parts: list[str]  # words after ``presim``
    state: State = "queued"
    seconds: float = 0.0  # that it has run
    exit_code: int | None = None
    started_s: float = 0.0  # by the monotonic clock
    process: subprocess.Popen[bytes] | None = None


class Jobs:
    """The jobs of an app. All methods may be called by any thread."""

    def __init__(self, project: Project, command: Command = presim_command, most_running: int | None = None) -> None:
        """``command``: makes a process's command of the words after ``presim``."""
        self.project, self._command = project, command
        self.most_running = most_running or max(1, min(4, len(os.sched_getaffinity(0))))
        self._jobs: dict[str, ProjectJob] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self, question: str, parts: list[str], name: str) -> ProjectJob:
        """Queue a command that writes the result of a name."""
        job = ProjectJob(name, question, parts)
        with self._lock:
            self.project.write_command(name, parts)
            self._jobs[name] = job
        self._fill()
        return job

    def get(self, name: str) -> ProjectJob | None:
        """The job of a name, with the time that it has run."""
        job = self._jobs.get(name)
        if job is not None and job.state == "running":
            job.seconds = time.monotonic() - job.started_s
        return job

    def all(self) -> list[ProjectJob]:
        """All jobs since the app was started, oldest first."""
        return [job for name in list(self._jobs) if (job := self.get(name)) is not None]

    def cancel(self, name: str) -> None:
        """End a job that has not ended; what it has finished is written by the command itself."""
        with self._lock:
            job = self._jobs.get(name)
            if job is None or job.state not in ("queued", "running"):
                return
            job.state, process = "cancelled", job.process
        if process is not None:
            _end(process)

    def forget(self, name: str) -> None:
        """Drop an ended job from the list."""
        self.cancel(name)
        with self._lock:
            self._jobs.pop(name, None)

    def close(self) -> None:
        """Cancel all jobs; none starts any more."""
        self._is_closed = True
        for job in self.all():
            self.cancel(job.name)

    def _fill(self) -> None:
        """Start queued jobs while cores are free."""
        with self._lock:
            running = sum(job.state == "running" for job in self._jobs.values())
            queued = [job for job in self._jobs.values() if job.state == "queued" and not self._is_closed]
            for job in queued[: max(self.most_running - running, 0)]:
                try:
                    self._run(job)
                except OSError:  # the folder is gone or full
                    job.state = "failed"
                    raise

    def _run(self, job: ProjectJob) -> None:
        with open(self.project.path(job.name, ".log"), "wb") as log:
            job.process = subprocess.Popen(
                self._command(job.parts),
                cwd=self.project.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "COLUMNS": _COLUMNS},
                start_new_session=True,
            )
        job.state, job.started_s = "running", time.monotonic()
        threading.Thread(target=self._wait, args=(job,), daemon=True).start()

    def _wait(self, job: ProjectJob) -> None:
        assert job.process is not None
        code = job.process.wait()
        with self._lock:
            job.seconds, job.exit_code = time.monotonic() - job.started_s, code
            if job.state == "running":
                job.state = "done" if self.project.path(job.name).is_file() else "failed"
        self._fill()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt a process and its children; kill them if they take too long."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
