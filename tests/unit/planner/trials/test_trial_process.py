"""Processes that evaluate points are started, asked and ended."""

from __future__ import annotations

import os
import signal

import pytest

from presim.errors import ExitCode
from presim.planner.trials import trial_process
from presim.planner.trials.trial_messages import Subject
from presim.planner.trials.worker import _Points, send


def test_an_idle_process_ends_by_itself() -> None:
    worker = trial_process.start(Subject(options={"gpu": "h100-sxm"}))
    trial_process.end([worker])
    assert worker.returncode == ExitCode.STANDS


def test_a_process_without_grace_is_killed() -> None:
    worker = trial_process.start(Subject(options={"gpu": "h100-sxm"}))
    trial_process.end([worker], grace_s=0.0)
    assert worker.returncode is not None


def test_a_process_that_died_gives_no_reply() -> None:
    worker = trial_process.start(Subject(options={"gpu": "h100-sxm"}))
    worker.kill()
    worker.wait()
    assert trial_process.ask(worker, {"tensor": 1}) is None
    trial_process.end([worker])


def test_an_input_that_ends_interrupts_what_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main thread gets SIGINT while it has a point, as by Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it stays pending, however early it comes
    reading, writing = os.pipe()
    try:
        with open(writing, "wb") as file, open(reading, "rb") as stdin:
            monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": stdin}))
            send(file, b"point")
            points = iter(_Points())
            assert next(points) == b"point"
            file.close()
            assert signal.sigtimedwait({signal.SIGINT}, 60) is not None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
