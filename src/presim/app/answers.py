"""What the app answers, as types: the JSON of each address, its OpenAPI description, and the page's own types."""

from __future__ import annotations

from typing import Any

import msgspec

from presim.app.jobs import State as JobState
from presim.app.key_figures import Summary


class ProjectRow(msgspec.Struct, frozen=True):
    """A result in the list of the project."""

    name: str
    kind: str
    question: str
    command: str
    version: str
    date: str
    summary: Summary
    problem: str = ""  # why it cannot be read


class Result(ProjectRow, frozen=True, kw_only=True):
    """A result with the names of its panes and the values that its question was asked with."""

    panes: list[str]
    is_changeable: bool
    has_timelines: bool  # at the address of timelines, below its name
    values: dict[str, str | bool]
    log: str


class JobStatus(msgspec.Struct, frozen=True):
    """A job that this session started."""

    name: str
    question: str
    command: str
    state: JobState
    seconds: float  # that it has run
    exit_code: int | None
    progress: str  # last line of the log while it runs


class JobLog(JobStatus, frozen=True, kw_only=True):
    """A job with its log, and by option what its command said if it failed."""

    log: str
    errors: dict[str, str]


class QuestionLine(msgspec.Struct, frozen=True):
    """A question in the list of all."""

    name: str
    title: str
    summary: str


class SavedJobLine(msgspec.Struct, frozen=True):
    """A saved job of the folder."""

    name: str
    problem: str  # why it cannot be opened; empty: it can


class Overview(msgspec.Struct, frozen=True):
    """The project: its questions, jobs of this session that are not done, saved jobs, and results, newest first."""

    folder: str
    version: str
    processes: int  # that run at a time
    may_change: bool  # whether the token of the request may start and delete
    questions: list[QuestionLine]
    jobs: list[JobStatus]
    saved_jobs: list[SavedJobLine]
    results: list[ProjectRow]


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is refused, and by option what the command line says of its value."""

    error: str
    errors: dict[str, str]


class Done(msgspec.Struct, frozen=True):
    """Nothing but that it was done."""


PaneData = dict[str, Any]  # what the chart of a pane draws; each has its own
