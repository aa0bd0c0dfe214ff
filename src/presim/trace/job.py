"""A job: what every source delivers, and every verb takes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from presim.trace import job_store
from presim.trace.coverage import RankCoverage
from presim.trace.schema import FAILED, STOPPED_WITH_ANOTHER, Trace


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Job:
    """Traces of the captured ranks, and which ranks they represent.

    Traces must not change once they are in a job, because results computed from them are cached.
    """

    traces: Sequence[Trace]  # ascending by rank
    stands_for: Mapping[int, Sequence[int]] = dataclasses.field(
        default_factory=dict
    )  # rank with a trace -> the other ranks that it represents
    coverage: RankCoverage = dataclasses.field(default_factory=RankCoverage)  # which ranks were run and compared
    notes: Sequence[str] = ()  # sentences for the result
    partial: bool = False  # an interrupt ended the capture; a note says what is missing

    @classmethod
    def of(cls, traces: Trace | Sequence[Trace], stands_for: Mapping[int, Sequence[int]] | None = None) -> Job:
        """The job of one trace or several."""
        return cls([traces] if isinstance(traces, Trace) else list(traces), stands_for or {})

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Job:
        """Read a job that was saved by `save` or by ``presim run --save``.

        Raises:
            InputError: there is no job, or it is damaged.
        """
        stored = job_store.load(directory)
        manifest = stored.manifest
        traces = tuple(stored.traces[rank] for rank in sorted(stored.traces))
        return cls(traces, manifest.others(), manifest.coverage, manifest.notes)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write the job; ``presim simulate`` reads it.

        Raises:
            InputError: the directory cannot be written.
        """
        job_store.save(
            list(self.traces), directory, stands_for=self.stands_for, coverage=self.coverage, notes=self.notes
        )

    @property
    def reported_rank(self) -> int:
        """The rank that a report is on: the first that failed by itself, else the lowest."""
        manifests = [trace.manifest for trace in self.traces]
        failed_ranks = [
            manifest.rank
            for manifest in manifests
            if manifest.exit in FAILED and manifest.error != STOPPED_WITH_ANOTHER
        ]
        return failed_ranks[0] if failed_ranks else manifests[0].rank

    def __repr__(self) -> str:
        manifest = self.traces[0].manifest
        script = os.path.basename(manifest.script)
        ranks = f"{len(self.traces)} of {manifest.world_size} ranks captured"
        return f"<{type(self).__name__} {script}: {ranks}, for {manifest.gpu}>"
