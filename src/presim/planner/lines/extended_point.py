"""Answer for a point of a command by extending the jobs of points below it on a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.planner.lines.captured_points import CapturedPoints
from presim.planner.lines.line_order import lower_points
from presim.planner.trials.trial import Point, Value, format_value

if TYPE_CHECKING:
    from presim.evaluation.evaluate_traces import Evaluation
    from presim.evaluation.options import RunOptions
    from presim.planner.lines.captured_pair import CapturedPair
    from presim.trace.job import Job

_WHOLE_EXITS = ("ok", "stopped")


class PointExtender:
    """Extends the points of a search along the knobs that may have a law."""

    def __init__(self, folder: Path, knobs: Mapping[str, Sequence[Value]]) -> None:
        self.points, self._knobs = CapturedPoints(folder), knobs

    def extend(self, point: Point, command: Sequence[str], options: RunOptions) -> tuple[Evaluation, str] | None:
        """The evaluation of a point with a sentence on its origin; None: it has to be captured."""
        for knob, values in self._knobs.items():
            pair = None if self.points.is_stopped(point, knob) else self._pair(point, knob, values)
            if pair is None:
                continue
            job, origin = self._job(point, knob, pair, command, options)
            if job is not None:
                return _evaluate(job, command, options), origin
        return None

    def _pair(self, point: Point, knob: str, values: Sequence[Value]) -> CapturedPair | None:
        """The two jobs next below a point on a line; None: there are fewer."""
        from presim.planner.lines.captured_pair import CapturedPair
        from presim.trace.job import Job

        lower = [
            (other, self.points.find(other, knob, list(self._knobs))) for other in lower_points(point, knob, values)
        ]
        jobs = [(int(other[knob]), Job.load(folder)) for other, folder in lower if folder is not None]
        complete_jobs = [(value, job) for value, job in jobs if _is_whole(job)]
        if len(complete_jobs) < 2:
            return None
        (smaller_value, smaller), (larger_value, larger) = complete_jobs[-2:]
        return CapturedPair(smaller, larger, smaller_value, larger_value)

    def _job(
        self, point: Point, knob: str, pair: CapturedPair, command: Sequence[str], options: RunOptions
    ) -> tuple[Job | None, str]:
        """The extended job with a sentence on its origin; None: the jobs of the pair do not confirm a law."""
        from presim.planner.lines.captured_pair import NoLawError
        from presim.planner.lines.laws import extended_job
        from presim.verbs.run import cluster_of_command

        try:
            world_size = cluster_of_command(command, options).world_size
            quantity, job = extended_job(pair, int(point[knob]), world_size)
        except InputError as refusal:
            self.points.refuse(point, knob, str(refusal), is_final=isinstance(refusal, NoLawError))
            return None, ""
        if len(self._knobs) > 1:
            job.save(self.points.job_folder(point, knob))
        values = f"{knob}={format_value(pair.smaller_value)} and {format_value(pair.larger_value)}"
        return job, f"{quantity} extended from {values}"


def _is_whole(job: Job) -> bool:
    return all(trace.manifest.exit in _WHOLE_EXITS for trace in job.traces)


def _evaluate(job: Job, command: Sequence[str], options: RunOptions) -> Evaluation:
    """The evaluation of an extended job on the cluster of a command."""
    from presim.cost.estimators import holds_prices
    from presim.evaluation.evaluate_traces import evaluate
    from presim.verbs.run import cluster_of_command
    from presim.verbs.target import engine_options, what_if_changes

    return evaluate(
        job,
        cluster_of_command(command, options),
        engine_options(options),
        rank=job.reported_rank,
        prices=[folder for folder in options.price_folders if holds_prices(folder)],
        changes=what_if_changes(options),
    )
