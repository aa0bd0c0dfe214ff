"""Programs and plans as sources: jobs from `presim run` and `presim compose`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from presim.evaluation.job import Job
from presim.evaluation.options import ClusterOptions, RunOptions

if TYPE_CHECKING:
    from presim.composition.plan import Plan


@dataclasses.dataclass(frozen=True)
class Captured:
    """Runs a script or a launch command on the emulated cluster."""

    command: Sequence[str]
    options: RunOptions
    name: str = "capture"

    def job(self) -> Job:
        """Capture the job.

        Raises:
            InputError: an option or the script is invalid.
            CaptureError: the script cannot run here, or did no GPU work.
        """
        from presim.verbs.run import capture_command, cluster_of_command

        target = cluster_of_command(self.command, self.options)
        capture = capture_command(self.command, target, self.options)
        return Job(tuple(capture.traces), capture.stands_for, capture.coverage, tuple(capture.notes))


@dataclasses.dataclass(frozen=True)
class Composed:
    """Composes a training job from a model's graph and a plan."""

    model: str
    plan: Plan
    cluster: ClusterOptions
    dtype: str = "bfloat16"
    name: str = "composition"

    def job(self) -> Job:
        """Compose the job.

        Raises:
            InputError: the model cannot be traced, or the plan is invalid.
        """
        from presim.composition.compose import compose
        from presim.composition.graph.take import open_graph
        from presim.verbs.target import chosen_cluster

        composition = compose(open_graph(self.model, self.dtype), self.plan, chosen_cluster(self.cluster))
        return Job(tuple(composition.traces), composition.stands_for, notes=tuple(composition.notes))
