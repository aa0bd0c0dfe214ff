"""Runs a request: strategy, workers and storage put together, and the answer made of the trials."""

from __future__ import annotations

from collections.abc import Sequence

from presim.search.job import Job
from presim.search.loop import Evaluation, Nothing, Progress, exhaustive
from presim.search.prune import Keeps
from presim.search.request import Request
from presim.search.study import Answer, front_of, overlapping, ranked
from presim.search.trial import Trial
from presim.search.why import importance, infeasible, loses_on
from presim.search.workers import Workers


def run(request: Request, progress: Progress = lambda text: None) -> Answer:
    """Search the space.

    Raises:
        InputError: the request cannot be met.
    """
    job = Job(graph=request.graph, command=list(request.command), options=dict(request.options))
    with Workers(job, request.jobs) as workers:
        evaluation = Evaluation(request, workers, Nothing(), progress)
        trials = exhaustive(request, evaluation, Keeps())
    return answer(request, trials)


def answer(request: Request, trials: Sequence[Trial]) -> Answer:
    """What the trials come to."""
    objective, work = request.objectives[0], request.work
    best = ranked(trials, objective, work, request.constraints)
    front = front_of(best, request.objectives, work) if len(request.objectives) > 1 else best[:1]
    loses: dict[str, float] = {}
    if len(best) > 1 and best[0].figures and best[1].figures:
        loses = loses_on(best[0].figures, best[1].figures)
    notes = [] if best else [infeasible(trials, request.constraints, work)]
    return Answer(
        subject=request.subject,
        objectives=[objective.name for objective in request.objectives],
        strategy=request.strategy,
        varied={name: list(values) for name, values in request.space.varied.items()},
        fixed=dict(request.space.fixed),
        complete=all(trial.fate != "open" for trial in trials),
        trials=list(trials),
        best=[trial.number for trial in best],
        front=[trial.number for trial in front],
        undecided=[trial.number for trial in overlapping(best, objective, work)],
        importance=importance(trials, request.space.varied, objective, work),
        loses=loses,
        notes=notes,
    )
