"""How sure an answer is: the same load with other draws, steps that take 10 % more or less, and where queues grow."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from presim.serving.deployments.capacity import IDLE, OfferedLoad, Trial, largest, trial
from presim.serving.deployments.concurrent_trials import side_by_side
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.deployment_ranking import RankedDeployment, deployment_of
from presim.serving.deployments.rates import STEADY, sustainable_rate

DRAWS = 5  # the range of five draws has the median within with 94 % (1 - 2 / 2^5)
FEWER_DRAWS, _MANY_TOKENS = 3, 15_000_000  # draws, with 75 %, of loads whose trials simulate so many tokens
DOUBT = 0.1  # of the times of steps
_REQUESTS = 2000  # of a draw, where steps allow so many: five draws have 100 slower than their p99
_STEP = 0.98  # between rates that are tried until the draws meet the SLO
_MOST_STEPS = 40
_NEAR = 1.06  # between the first rates that are tried with other times of steps: rates change nearly as these do
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0, 1.05)  # of the largest rate, for a curve


@dataclasses.dataclass(frozen=True)
class Confirmed:
    """A deployment at the largest rate at which the SLO is met in the mean of several draws of its load."""

    outcome: RankedDeployment
    ranges: dict[str, tuple[float, float]]  # of figures over the draws
    queue_rate: float  # requests/s from which on queues grow without end
    rates: tuple[float, float] = (0.0, 0.0)  # within the SLO if steps take 10 % more, and 10 % less; `with_doubt`
    curve: tuple[Trial, ...] = ()  # at shares of the largest rate, for pictures
    draws: int = DRAWS  # of its load


def confirmed(outcome: RankedDeployment, load: OfferedLoad) -> Confirmed:
    """Lower the rate of an outcome until the mean over the draws meets the SLO, and find its range."""
    assert outcome.trial is not None
    deployment, stay_s = deployment_of(outcome.point), outcome.stay_s
    count = DRAWS if outcome.trial.tokens < _MANY_TOKENS else FEWER_DRAWS
    draws = [load, *(load.redrawn(seed) for seed in range(1, count))]
    rate = outcome.trial.rate
    for _ in range(_MOST_STEPS):
        run = functools.partial(_drawn, deployment, rate, stay_s)
        trials = side_by_side(run, draws)
        mean = _mean(trials, load)
        if mean.meets:
            break
        rate *= _STEP
    settled = dataclasses.replace(outcome, trial=mean, verdict="meets" if mean.meets else "misses")
    names = mean.figures
    ranges = {name: _range([result.figures.get(name, np.inf) for result in trials]) for name in names}
    queue_rate = outcome.queue_rate or sustainable_rate(deployment, load.workload) or rate
    return Confirmed(settled, ranges, queue_rate, draws=count)


def _drawn(deployment: Deployment, rate: float, stay_s: float, load: OfferedLoad) -> Trial:
    return trial(deployment, load, rate, stay_s, fewest=_REQUESTS)


def with_doubt(candidate: Confirmed, load: OfferedLoad) -> Confirmed:
    """With the largest rates if steps take 10 % more or less time."""
    outcome, sustained = candidate.outcome, STEADY * candidate.queue_rate
    assert outcome.trial is not None
    rate = outcome.trial.rate
    run = functools.partial(_rate_of, outcome, load, rate, sustained)
    slow, fast = side_by_side(run, (1 + DOUBT, 1 - DOUBT))
    return dataclasses.replace(candidate, rates=(min(slow, rate), max(fast, rate)))


def with_curve(candidate: Confirmed, load: OfferedLoad) -> Confirmed:
    """With the figures of one draw at several shares of the largest rate."""
    outcome = candidate.outcome
    assert outcome.trial is not None
    deployment, rate = deployment_of(outcome.point), outcome.trial.rate
    trials = side_by_side(lambda share: trial(deployment, load, share * rate, outcome.stay_s), _SHARES)
    return dataclasses.replace(candidate, curve=tuple(result for result in trials if result.figures))


def _range(values: list[float]) -> tuple[float, float]:
    return float(min(values)), float(max(values))


def _mean(trials: list[Trial], load: OfferedLoad) -> Trial:
    """Figures in the mean over the draws."""
    if not all(result.figures for result in trials):
        return next(result for result in trials if not result.figures)
    figures = {name: float(np.mean([result.figures[name] for result in trials])) for name in trials[0].figures}
    excess = max(
        (figures[f"{load.slo.statistics[name]}_{name}_ms"] / bound for name, bound in load.slo.bounds.items()),
        default=0.0,
    )
    judged = sum(result.judged for result in trials)
    in_flight = float(np.mean([result.in_flight for result in trials]))
    return Trial(trials[0].rate, judged, figures, excess <= 1, in_flight, excess)


def _rate_of(outcome: RankedDeployment, load: OfferedLoad, rate: float, steady_rate: float, device: float) -> float:
    """The largest rate within the SLO if device times are so many times as long; 0 if there is none."""
    deployment = deployment_of(outcome.point)
    sustained = steady_rate / device
    if not load.slo.bounds:
        return sustained

    def run(tried: float) -> Trial:
        return trial(deployment, load, tried, outcome.stay_s, device=device)

    result = largest(run, rate / device, IDLE / outcome.stay_s, spacing=_NEAR)
    return min(result.rate, sustained) if result.meets else 0.0
