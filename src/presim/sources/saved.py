"""A saved job as a source."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from presim.sources.source import SourceRequest
from presim.trace.job import Job
from presim.trace.job_store import JOB_FILE


@dataclasses.dataclass(frozen=True)
class Saved:
    """Reads the folder of a job."""

    folder: Path
    name: str = "saved job"

    def job(self) -> Job:
        """The job in the folder."""
        return Job.load(self.folder)


def open_saved(paths: Sequence[Path], request: SourceRequest) -> Saved | None:
    """Open one folder with a saved job."""
    return Saved(paths[0]) if len(paths) == 1 and (paths[0] / JOB_FILE).is_file() else None
