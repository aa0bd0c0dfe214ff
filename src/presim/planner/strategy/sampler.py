"""Sampling strategies for spaces too large to enumerate: Optuna proposes points, presim evaluates them.

Proposals come in batches of a fixed size and are answered in order: the same seed gives the same trials for any number
of processes. The sampler's study is in memory. A resumed search proposes the same points again, and stored trials
answer them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from presim.errors import InputError
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.strategy.search_loop import EvaluationRounds, Pruner
from presim.planner.trials.trial import Point, Trial, Value, key

if TYPE_CHECKING:
    import optuna

BATCH = 8
DEFAULT_TRIALS = 200
_PATIENCE = 20  # proposals of known points per requested trial, before the sampler gives up
_OVER = "over"  # name of the Optuna constraint: by how much a plan breaks its limits
SAMPLERS = ("tpe", "nsga2", "cmaes", "gp", "random", "grid")


def evaluate_sampled_points(request: SearchRequest, evaluation: EvaluationRounds, pruner: Pruner) -> list[Trial]:
    """Trials proposed by a sampler, numbered in order; each point occurs once."""
    study = _study(request)
    num_trials = min(request.trials or DEFAULT_TRIALS, len(request.space))
    trial_by_key: dict[str, Trial] = {}
    proposed = 0
    while len(trial_by_key) < num_trials and proposed < _PATIENCE * num_trials and not evaluation.over:
        proposals = [study.ask() for _ in range(BATCH)]
        points = [
            evaluation.representative(_point(proposal, request.space, request.strategy)) for proposal in proposals
        ]
        proposed += len(points)
        _evaluate(points, trial_by_key, evaluation, pruner, num_trials)
        for proposal, point in zip(proposals, points):
            _tell(study, proposal, trial_by_key.get(key(point)), request)
    return list(trial_by_key.values())


def _evaluate(
    points: Sequence[Point],
    trial_by_key: dict[str, Trial],
    evaluation: EvaluationRounds,
    pruner: Pruner,
    num_trials: int,
) -> None:
    """Evaluate the points that are new."""
    round_: list[tuple[int, Point]] = []
    fresh: dict[str, Trial | None] = {}
    for point in points:
        name = key(point)
        if name in trial_by_key or name in fresh or len(trial_by_key) + len(fresh) >= num_trials:
            continue
        number = len(trial_by_key) + len(fresh)
        fresh[name] = evaluation.screened(number, point) or pruner.pruned(number, point)
        if fresh[name] is None:
            round_.append((number, point))
    evaluated = {key(trial.point): trial for trial in evaluation.run(round_)} if round_ else {}
    for name, trial in fresh.items():
        trial_by_key[name] = trial or evaluated[name]
        pruner.record(trial_by_key[name])


def _tell(study: optuna.Study, proposal: optuna.Trial, trial: Trial | None, request: SearchRequest) -> None:
    import optuna

    if trial is None or trial.figures is None:
        study.tell(proposal, state=optuna.trial.TrialState.FAIL)
        return
    values = [objective.of(trial.figures, request.work) for objective in request.objectives]
    if any(value is None for value in values):
        study.tell(proposal, state=optuna.trial.TrialState.FAIL)
        return
    lacks = request.constraints.spare_bytes - trial.figures.headroom_bytes
    broken = bool(request.constraints.broken(trial, request.work))
    if request.strategy == "cmaes" and broken:  # CMA-ES does not support constraints
        study.tell(proposal, state=optuna.trial.TrialState.FAIL)
        return
    if request.strategy != "cmaes":
        proposal.set_constraint(_OVER, max(lacks / (1 << 30), 1e-3) if broken else -1.0)
    study.tell(proposal, [value for value in values if value is not None])


def _study(request: SearchRequest) -> optuna.Study:
    try:
        import optuna
    except ImportError as error:
        raise InputError(f"--sampler {request.strategy} needs Optuna: `pip install presim[search]`") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    directions = [objective.direction for objective in request.objectives]
    if len(directions) > 1 and request.strategy == "cmaes":
        raise InputError("the sampler cmaes supports one objective: leave out the others, or use --sampler nsga2")
    return optuna.create_study(directions=directions, sampler=_sampler(request))


def _sampler(request: SearchRequest) -> Any:
    import optuna.samplers as made

    name, seed = request.strategy, request.seed
    try:
        if name == "tpe":
            return made.TPESampler(seed=seed, multivariate=True)
        if name == "nsga2":
            return made.NSGAIISampler(seed=seed, population_size=24)
        if name == "cmaes":
            return made.CmaEsSampler(seed=seed)
        if name == "gp":
            return made.GPSampler(seed=seed)
        if name == "random":
            return made.RandomSampler(seed=seed)
        return made.GridSampler(_grid(request.space), seed=seed)
    except (ImportError, OSError) as error:
        raise InputError(
            f"the sampler {name} cannot be loaded ({str(error).splitlines()[0]}): install what it needs, or use "
            "--sampler tpe"
        ) from error


def _grid(space: Space) -> Mapping[str, list[int]]:
    return {name: list(range(len(values))) for name, values in space.varied.items()}


def _point(proposal: optuna.Trial, space: Space, strategy: str) -> Point:
    """The proposed point. Numeric knobs are suggested as ordered, others as categories if the sampler supports them."""
    point: Point = dict(space.fixed)
    for name, values in space.varied.items():
        value_indices = range(len(values))
        ordered = strategy in ("cmaes", "grid") or _is_ordered(values)
        if ordered:
            value_index = proposal.suggest_int(name, 0, len(values) - 1)
        else:
            value_index = proposal.suggest_categorical(name, list(value_indices))
        point[name] = values[value_index]
    return point


def _is_ordered(values: Sequence[Value]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
