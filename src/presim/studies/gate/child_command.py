"""Runs a command of presim in a process of its own, which ends by the same signal handling as this one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from presim.capture import ctrl_c

_SECONDS_TO_END = 15.0  # after SIGTERM: it ends its ranks and removes its folders, then it is killed


def run_child(command: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command and return its exit code and what it printed.

    `subprocess.run` kills it at an interrupt, so that its temporary folders stay; this one lets it clean up.
    """
    with ctrl_c.delayed():  # or a signal between its start and the next line leaves it running
        process = subprocess.Popen(
            command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
    with process:
        try:
            printed, errors = process.communicate()
        except BaseException:
            _end(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, printed, errors)


def _end(process: subprocess.Popen[str]) -> None:
    """End it with SIGTERM, or after a while with SIGKILL."""
    try:
        process.terminate()
        process.communicate(timeout=_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
