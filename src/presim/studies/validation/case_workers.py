"""Worker processes that predict cases. Each has a pipe of its own, so one that dies takes no other case with it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from presim.capture.processes.rank_process import end_with_parent
from presim.engine.simulation_options import Options
from presim.studies.validation.cases import Case
from presim.studies.validation.results import RUN_FAILED, Prediction
from presim.studies.validation.runs import Providers
from presim.studies.validation.solve import solve
from presim.system import interrupts

_SPAWN = multiprocessing.get_context("spawn")
_SECONDS_TO_END = 10.0  # of a worker that ends its captures after SIGTERM, before it is killed
_ALONE = "and again when no other case ran beside it, so the machine may lack the memory for it"


@dataclasses.dataclass(eq=False)
class _Worker:
    """A process, this end of its pipe, and the case it predicts; None: it is idle."""

    process: BaseProcess
    connection: Connection
    case: Case | None = None


def solve_all(
    cases: Sequence[Case], providers: Providers, jobs: int, options: Options | None = None
) -> Iterator[tuple[Case, Prediction]]:
    """The cases with their predictions, in order of completion; in this process, or in ``jobs`` worker processes."""
    if jobs == 1:
        yield from ((case, solve(case, providers, options)) for case in cases)
        return
    yield from predictions(cases, providers, jobs, options)


def predictions(
    cases: Sequence[Case], providers: Providers, jobs: int, options: Options | None
) -> Iterator[tuple[Case, Prediction]]:
    """The cases with their predictions in order of completion, ``jobs`` at a time, each in a worker process.

    A case whose worker died is predicted once more, at the end and alone: many die of the memory of all together.
    """
    unpredicted = []
    with _workers(providers, options) as workers:
        for case, prediction in workers.predicted(cases, jobs):
            if isinstance(prediction, int):
                unpredicted.append(case)
            else:
                yield case, prediction
    for case in unpredicted:
        with _workers(providers, options) as workers:
            for _, prediction in workers.predicted([case], 1):
                yield case, Prediction(reason=_death(prediction)) if isinstance(prediction, int) else prediction


def _death(exit_code: int) -> str:
    """Why a case has no prediction: how its worker ended, with a negative exit code for a signal."""
    ended = f"was killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with code {exit_code}"
    return f"{RUN_FAILED}: the process that predicted it {ended}, {_ALONE}"


class _Workers:
    """Starts workers as they are needed, and ends them."""

    def __init__(self, providers: Providers, options: Options | None) -> None:
        self._arguments = (providers, options, os.getpid())
        self._workers: list[_Worker] = []

    def predicted(self, cases: Sequence[Case], jobs: int) -> Iterator[tuple[Case, Prediction | int]]:
        """Each case with its prediction, or with the exit code of the worker that died of it."""
        waiting = collections.deque(cases)
        busy: dict[object, _Worker] = {}
        while waiting or busy:
            while waiting and len(busy) < jobs:
                worker = self._idle()
                worker.case = waiting.popleft()
                with contextlib.suppress(BrokenPipeError):  # it has died since: reading says so
                    worker.connection.send(worker.case)
                busy[worker.connection] = worker
            for connection in wait([worker.connection for worker in busy.values()]):
                yield self._answer(busy.pop(connection))

    def _idle(self) -> _Worker:
        """A worker that has no case; it is started if all have one."""
        for worker in self._workers:
            if worker.case is None:
                return worker
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_work, args=(theirs, *self._arguments))
        worker = _Worker(process, ours)
        # It unblocks them when it can end in silence; its imports cannot.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, interrupts.SIGNALS)
        try:
            process.start()
            self._workers.append(worker)
        finally:
            theirs.close()  # so that its death ends the pipe
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return worker

    def _answer(self, worker: _Worker) -> tuple[Case, Prediction | int]:
        """What a worker has sent, or the exit code of one that died."""
        case, worker.case = worker.case, None
        assert case is not None, "test_solve: only busy workers are waited for"
        try:
            prediction: Prediction = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._workers.remove(worker)
            worker.process.join()
            return case, worker.process.exitcode or 0
        return case, prediction

    def end(self) -> None:
        """End all: those that are idle at the end of their pipe, the others by SIGTERM, as it would end presim."""
        try:
            for worker in self._workers:
                worker.connection.close()
                if worker.case is not None:
                    worker.process.terminate()
            for worker in self._workers:
                worker.process.join(_SECONDS_TO_END)
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.join()


@contextlib.contextmanager
def _workers(providers: Providers, options: Options | None) -> Iterator[_Workers]:
    workers = _Workers(providers, options)
    try:
        yield workers
    finally:
        workers.end()


def _work(connection: Connection, providers: Providers, options: Options | None, parent: int) -> None:
    """Predict cases until the pipe ends; a signal ends what a case has started, without a word.

    Only the first signal is handled: the parent sends one more to a worker that got that of its group, and what a
    signal raises in multiprocessing's own end is printed as a traceback.
    """
    end_with_parent(parent)  # a parent that is killed cannot end its workers
    try:
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            interrupts.install(interrupts.raise_first)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupts.SIGNALS)
            while True:
                connection.send(solve(connection.recv(), providers, options))
        signal.pthread_sigmask(signal.SIG_BLOCK, interrupts.SIGNALS)
    except KeyboardInterrupt as error:
        sys.exit(interrupts.exit_code(error))
