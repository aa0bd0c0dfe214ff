"""A provider of cases that kill the process that predicts them, as the kernel does where memory runs out."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Collection
from pathlib import Path

from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.runs import ValidationRun

REASON = "this provider builds no case"


@dataclasses.dataclass(frozen=True)
class KillingProvider:
    """The column ``killed`` says when a case kills its process: ``always``, or ``once``, the first time."""

    folder: Path  # remembers which cases have killed
    sources_of_tests: Collection[str] = ()

    def prepare(self, case: Case) -> ValidationRun:
        """Kill this process, or say that the case cannot be built."""
        marker = self.folder / case.id
        if case.text("killed") == "always" or (case.text("killed") == "once" and not marker.exists()):
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        raise CannotBuildError(REASON)

    def close(self) -> None:
        """Nothing is held."""
