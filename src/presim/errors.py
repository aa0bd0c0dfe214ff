"""Errors: user errors, which the user can fix, and bugs of presim.

Library code raises, only the command line prints. A message shows the numbers and ends with what to do next.
"""

from __future__ import annotations

import enum
import traceback
from pathlib import Path


class ExitCode(enum.IntEnum):
    """How the command line ends; `MEANINGS` has each in words."""

    STANDS = 0
    BUG = 1
    UNUSABLE = 2
    SCRIPT_FAILED = 3
    DOES_NOT_FIT = 4
    HANGS = 5
    MISUSE = 6
    OVER_BUDGET = 7
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS = {
    ExitCode.STANDS: "The prediction stands. For verbs that predict nothing: success.",
    ExitCode.BUG: "A bug in presim: a traceback, or a sentence that asks for a report. `doctor`: something is missing.",
    ExitCode.UNUSABLE: "An option, file or script cannot be used, or the script cannot be captured here.",
    ExitCode.SCRIPT_FAILED: "The script raised, exited with an error code, or was killed.",
    ExitCode.DOES_NOT_FIT: "The job does not fit in the GPU's memory. `deploy`: no deployment meets the SLO.",
    ExitCode.HANGS: "The job would hang: ranks wait for each other or disagree.",
    ExitCode.MISUSE: "The script misuses CUDA: an index out of range, a copy beyond a block, …",
    ExitCode.OVER_BUDGET: "Of `gate`: a job breaks its budget, or no prediction of it stands.",
    ExitCode.HUNG_UP: "Ended by SIGHUP: the terminal was closed. Finished parts are written, marked as partial.",
    ExitCode.INTERRUPTED: "Interrupted with Ctrl-C (SIGINT). Finished parts are written, marked as partial.",
    ExitCode.TERMINATED: "Ended by SIGTERM (Slurm, `timeout`, CI). Finished parts are written, marked as partial.",
}


class PresimError(Exception):
    """Whatever presim raises on purpose."""


class InputError(PresimError):
    """What was handed in cannot be used: a file, an option, a script. The message says how to mend it."""


class CaptureError(PresimError):
    """The script could not be run on the emulated device, or left nothing behind to price."""


class InternalError(PresimError):
    """A fault of presim itself, found by a check; the message says what to report."""


class HangError(InputError):
    """The job would hang on the cluster: its ranks wait for each other, or for something that never comes."""

    def __init__(self, clause: str) -> None:
        self.clause = clause  # which rank waits for which call
        super().__init__(
            f"the job would hang: {clause}. Compare what these ranks call before; no rank's order may differ"
        )


class MisfitError(InputError):
    """The job needs more memory than its GPUs have, so that it cannot be predicted; the message says by how much."""


def reason_of(error: Exception) -> str:
    """The error of one row, trial or file of several, in a sentence; a bug of presim with its line in the source."""
    if isinstance(error, PresimError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"internal error of presim: {type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno}); "
        "please report it with this input"
    )
