"""Runs the commands of benchmarks: duration, memory and output.

This is not a benchmark. A failed command is reported in one sentence.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from presim.errors import InputError

PRESIM = (sys.executable, "-c", "from presim.cli.main import main; main()")


@dataclasses.dataclass(frozen=True)
class Ran:
    """Duration, memory and output of one command, including its child processes."""

    wall_s: float
    cpu_s: float
    peak_bytes: int  # resident, of the largest of its processes; no less than what the benchmark itself holds
    printed: str


def run(command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end.

    Raises:
        InputError: it ended with another code than 0; the last line that it printed is in the message.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=cwd, env=env, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        printed = out.read()
    if process.returncode:
        raise failure(command, process.returncode, printed)
    return Ran(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, printed)


def presim(*args: str | Path, cwd: Path | None = None) -> Ran:
    """Run a verb of presim; raises like `run`."""
    return run([*PRESIM, *args], cwd=cwd)


def failure(command: Sequence[str | Path], code: int, printed: str = "") -> InputError:
    """The message on a command that failed."""
    shown = " ".join(map(str, command)).replace(" ".join(PRESIM), "presim")
    last = next((line.strip() for line in reversed(printed.splitlines()) if line.strip()), "see above")
    return InputError(f"`{shown}` ended with code {code}: {last}")


def at_least_one(what: str) -> Callable[[str], int]:
    """Type of a command-line option: a whole number of at least 1."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text} is no number of {what}; give 1 or more")
        return int(text)

    return number
