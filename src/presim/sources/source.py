"""Interface of trace sources.

A source delivers a `presim.trace.job.Job`: traces, the ranks that each represents, and provenance. Functions of
the entry-point group ``presim.sources`` open files (`presim.sources.readers`).
"""

from __future__ import annotations

import dataclasses
from typing import Literal, Protocol

from presim.evaluation.options import ClusterOptions
from presim.trace.job import Job

GROUP = "presim.sources"


class Source(Protocol):
    """Delivers one job; implementations pass `presim.sources.source_conformance`."""

    @property
    def name(self) -> str:
        """In messages."""
        ...

    def job(self) -> Job:
        """Deliver the job; the same input gives the same job.

        Raises:
            InputError: the input cannot be used.
        """
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceRequest(ClusterOptions):
    """The user's options for files; cluster options describe the hardware that the files were recorded on."""

    step: int | None = None  # step number of a profile; None: all consecutive steps
    # ranks without a file: refuse, or assume that they behave like the others
    missing: Literal["refuse", "same"] = "refuse"
    keeps_pauses: bool = True  # pauses of the device that nothing explains count as part of the kernel after them
