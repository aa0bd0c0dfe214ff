"""Starts, asks and ends the processes that evaluate points (`presim.planner.trials.worker`)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from presim.planner.trials.trial import Point
from presim.planner.trials.trial_messages import Reply, Subject
from presim.planner.trials.worker import receive, send
from presim.system.files import decode_messagepack

GRACE_S = 20.0  # for a capture to end its ranks and to remove its files; it takes about one second


def start(
    job: Subject, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that evaluates points of a job.

    It has its own process group, so that Ctrl-C reaches it only through `end`.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "presim.planner.trials.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if job.captures else None,  # a script's last words come with its reply
        cwd=folder,
        env={**os.environ, **(environment or {})},
        process_group=0,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died, which `ask` finds out
        send(process.stdin, msgspec.msgpack.encode(job))
    return process


def ask(process: subprocess.Popen[bytes], point: Point) -> Reply | None:
    """The reply; None where the process died or was ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        send(process.stdin, msgspec.msgpack.encode(point))
        data = receive(process.stdout)
    except (BrokenPipeError, ValueError):
        return None
    return None if data is None else decode_messagepack(data, Reply)


def end(processes: Iterable[subprocess.Popen[bytes]], grace_s: float = GRACE_S) -> None:
    """End processes. Those that capture a script end its ranks and remove their files, within ``grace_s``."""
    every = list(processes)
    for process in every:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # a process whose input ends stops what it evaluates
    deadline = time.monotonic() + grace_s
    for process in every:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
