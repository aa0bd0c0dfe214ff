"""Run a workload on a fleet: build the loop's arrays, run it, and collect what happened to requests and steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.errors import InternalError
from presim.serving.engines.columns import as_column, start
from presim.serving.engines.engine import Fleet
from presim.serving.fast import compiled_scheduler as compiled_loop
from presim.serving.fast import serving_loop as uncompiled_loop
from presim.serving.fast import serving_state
from presim.serving.workloads.workload import Workload

Ints = NDArray[np.int64]
Record = dict[str, Any]  # a column by its name
_SPARE_ROWS = 2  # of a log that is full for the loop
_WAITING_STEPS = 200  # steps of the uncompiled loop between two looks at whether the compiled one is there


@dataclasses.dataclass(frozen=True, eq=False)
class Served:
    """Results of a run; times in ns since the start of the workload, -1 if an event did not happen."""

    workload: Workload
    sent: Ints
    queued: Ints
    scheduled: Ints
    first: Ints  # first token at the client
    last: Ints  # last token
    status: Ints
    replica: Ints
    preemptions: Ints
    hits: Ints  # tokens of prompts found in a GPU's cache
    host_hits: Ints  # prompt tokens found in host memory
    disk_hits: Ints
    shared_hits: Ints  # prompt tokens found in the pool that replicas share
    steps: Ints  # [step, column of `state.LOG_…`]
    gaps: Ints  # [entry, (ns between two tokens, count)]
    schedule: Ints  # [entry, (step, request, tokens)], if recorded
    moves: Ints  # number of times a request lost its replica
    events: Ints  # [entry, (ns, engine, new state: `state.SERVING` …)]
    redone: int  # computed tokens that requests lost with a replica and compute again on another
    demoted: int  # blocks evicted from GPUs to host memory or disk
    dropped: int  # blocks evicted from the last tier
    stored: int  # blocks written to the pool that replicas share

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Mask of finished requests."""
        done: NDArray[np.bool_] = self.status == serving_state.FINISHED
        return done


def simulate(workload: Workload, fleet: Fleet, *, record: bool = False, compiled: bool = True) -> Served:
    """Serve a workload. ``record`` keeps each step's schedule; ``compiled=False`` gives the same result slowly.

    Where no machine code of the loop is on disk, the loop runs uncompiled until another process has compiled it.
    """
    run = FleetRun(workload, fleet, record=record, compiled=compiled)
    while not run.is_done:
        run.advance()
    return run.served()


class FleetRun:
    """A run that pauses: what happens before `now_ns` is known, and no more of it is simulated than is asked for.

    Not done -> `advance` -> not done … -> done; `served` takes the logs out, once.
    """

    def __init__(
        self,
        workload: Workload,
        fleet: Fleet,
        *,
        record: bool = False,
        compiled: bool = True,
        pause_steps: int | None = None,
    ) -> None:
        """``pause_steps``: most steps of all engines between two pauses; None: what a log has room for."""
        self.workload, self.fleet, self.is_done = workload, fleet, False
        self._loop = _Loop(*start(workload, fleet, record=record), compiled=compiled, pause_steps=pause_steps)
        self._pieces: dict[str, list[Ints]] = {"log": [], "gaps": [], "schedule": [], "events": []}
        self._logged = -1

    def advance(self) -> None:
        """Go on until the next pause, or the end.

        Raises:
            InternalError: no engine makes progress.
        """
        code = self._loop.run()
        columns = self._loop.columns
        self._logged = _drain(columns, self._pieces, self._logged)
        if code == 2:
            raise InternalError(_stopped(self.workload, self.fleet, columns["status"]))
        self.is_done = code == 0

    @property
    def now_ns(self) -> int:
        """The time before which everything has happened."""
        return int(self._loop.columns["counters"][serving_state.NOW])

    def column(self, name: str) -> Ints:
        """A copy of a column of requests, as it is now."""
        return np.array(self._loop.columns[name], np.int64)

    def served(self) -> Served:
        """What has happened; requests that are not finished have their tokens so far."""
        counters, pieces = self._loop.columns["counters"], self._pieces
        return Served(
            self.workload,
            **{name: self.column(name) for name in _PER_REQUEST},
            steps=_joined(pieces["log"]).reshape(-1, serving_state.LOG),
            gaps=_joined(pieces["gaps"]).reshape(-1, 2),
            schedule=_joined(pieces["schedule"]).reshape(-1, 3),
            events=_joined(pieces["events"]).reshape(-1, 3),
            redone=int(counters[serving_state.REDONE]),
            demoted=int(counters[serving_state.DEMOTED]),
            dropped=int(counters[serving_state.DISK_LOST]),
            stored=int(counters[serving_state.POOL_STORED]),
        )


class _Loop:
    """The scheduler's loop over a program and its state: uncompiled on lists, then compiled on arrays."""

    def __init__(self, program: Record, columns: Record, *, compiled: bool, pause_steps: int | None = None) -> None:
        self.program, self.columns = program, columns
        self._log_rows = int(program["fleet_knobs"][serving_state.LOG_ROWS])
        if pause_steps is not None:
            self._log_rows = min(self._log_rows, pause_steps + _SPARE_ROWS)
        self._is_compiled = False
        self._may_compile = compiled
        if not compiled or compiled_loop.is_compiling():
            self.program, self.columns = _lists(program), _lists(columns)

    def run(self) -> int:
        """Run until all requests are finished (returns 0), or the results so far must be taken out (1)."""
        if self._may_compile and not self._is_compiled and not compiled_loop.is_compiling():
            self.program, self.columns = _arrays(self.program), _arrays(self.columns)
            self._is_compiled = True
        run: Any = compiled_loop.compiled_run() if self._is_compiled else uncompiled_loop.run
        is_waiting = self._may_compile and not self._is_compiled
        self.program["fleet_knobs"][serving_state.LOG_ROWS] = (
            min(_WAITING_STEPS + _SPARE_ROWS, self._log_rows) if is_waiting else self._log_rows
        )
        code: int = run(serving_state.Program(**self.program), serving_state.ServingState(**self.columns))
        return code


def _lists(record: Record) -> Record:
    return {name: column.tolist() for name, column in record.items()}


def _arrays(record: Record) -> Record:
    return {name: as_column(name, values) for name, values in record.items()}


def _stopped(workload: Workload, fleet: Fleet, status: Any) -> str:
    """The sentence for a loop that ended before its requests; no cause is known (test_simulate.py)."""
    waiting = np.flatnonzero(
        ~np.isin(np.asarray(status), (serving_state.FINISHED, serving_state.REFUSED, serving_state.LOST))
    )
    request, limits = int(waiting[0]), fleet.replicas[0].limits
    return (
        f"internal error of presim: the serving loop stopped with {len(waiting)} of {len(workload)} requests left, "
        f"first number {request} of {workload.prompt[request]} prompt and {workload.output[request]} output tokens "
        f"({len(fleet.replicas)} engines, {limits.pipeline_parallel_size} pipeline stages, seed {fleet.seed}); please "
        "report it with the command"
    )


def _joined(pieces: list[Ints]) -> Ints:
    """Concatenate pieces; each is freed as soon as it is copied."""
    joined = np.empty(sum(map(len, pieces)), np.int64)
    end = len(joined)
    while pieces:
        piece = pieces.pop()
        joined[end - len(piece) : end] = piece
        end -= len(piece)
    return joined


_PER_REQUEST = (
    "sent",
    "queued",
    "scheduled",
    "first",
    "last",
    "status",
    "replica",
    "preemptions",
    "hits",
    "host_hits",
    "disk_hits",
    "shared_hits",
    "moves",
)


def _drain(columns: dict[str, Any], pieces: dict[str, list[Ints]], before: int) -> int:
    """Move the logs' entries to ``pieces`` and empty the logs; returns the number of steps logged so far."""
    counters = columns["counters"]
    logged = 0 if before < 0 else before
    for name, counter, width in (
        ("log", serving_state.STEPS, serving_state.LOG),
        ("gaps", serving_state.PAIRS, 2),
        ("schedule", serving_state.ENTRIES, 3),
        ("events", serving_state.EVENTS, 3),
    ):
        rows = np.array(columns[name][: counters[counter] * width], np.int64)
        if name == "schedule":
            rows[::3] += logged
        pieces[name].append(rows)
    logged += counters[serving_state.STEPS]
    counters[serving_state.STEPS] = counters[serving_state.PAIRS] = counters[serving_state.ENTRIES] = counters[
        serving_state.EVENTS
    ] = 0
    return int(logged)
