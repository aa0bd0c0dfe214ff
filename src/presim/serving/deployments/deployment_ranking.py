"""Which deployment serves most within an SLO: the closed form says where to look, the simulator decides.

Among engines that do both, and among those with prefill and decode apart, plans are simulated in order of their
estimates, without those whose estimate is below the largest load that was found. Estimates may be off by `_SLACK`, so
plans that they place outside the SLO by less are simulated, too.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Literal

from presim.errors import reason_of
from presim.serving.answer.metrics import Slo
from presim.serving.deployments.capacity import IDLE, JUDGED, PRECISION, OfferedLoad, Trial, largest, trial
from presim.serving.deployments.demand import Demand
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.deployment_point import DeploymentPoint, excess
from presim.serving.deployments.deployment_search import Found
from presim.serving.deployments.rates import STEADY, sustainable_rate
from presim.system.interrupts import caught

Say = Callable[[str], object]  # told what is being done
Verdict = Literal["meets", "fewer", "misses"]  # fewer: it does not serve a load that another does

# How far the closed form's TPOT is from the simulated one: tests/unit/serving/deployments/test_deployment_search.py
_SLACK, _SLACK_WITH_EXPERTS = 1.25, 1.75
# Bounds of a kind of plans: after one of them no further plan is simulated. Tokens of output are what simulations cost,
# some 0.3 us each.
_MOST_SIMULATED, _MOST_TOKENS = 40, 150_000_000
# A plan that misses the SLO by such a factor in a short run at the load of the best is not simulated in full. A short
# run has no queue that has grown for long, and few requests for a percentile: TTFT may miss by chance, TPOT hardly.
_GLANCED, _CLEAR_MISS = 150, {"ttft": 1.5, "tpot": 1.15, "e2el": 1.15}
_ANY = Demand()
_NEAREST = 4  # plans that are simulated where no estimate is near the SLO


@dataclasses.dataclass(frozen=True)
class RankedDeployment:
    """A deployment that was simulated."""

    point: DeploymentPoint  # its estimate
    verdict: Verdict
    trial: Trial | None  # at its largest load within the SLO; otherwise at a load that misses it
    output: float  # tokens of a request, in the mean
    reason: str = ""  # why it could not be simulated
    queue_rate: float | None = None  # requests/s from which on queues grow without end; None: not sought
    tokens: int = 0  # of output that its trials simulated

    @property
    def stay_s(self) -> float:
        """Seconds of a request in the engines, as estimated."""
        return (self.point.ttft_ms + self.output * self.point.tpot_ms) / 1e3

    @property
    def per_gpu(self) -> float:
        """Output tokens/s per GPU at the load of the trial; 0 without one."""
        return self.trial.rate * self.output / self.point.gpus if self.trial else 0.0


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Deployments that were simulated."""

    outcomes: tuple[RankedDeployment, ...]  # those that are worth most first
    plans: int  # that could have been simulated
    partial: bool  # a signal ended it before the last simulation
    unsimulated: int = 0  # plans that may serve more by their estimates, left out by the bounds of a search

    @property
    def best(self) -> RankedDeployment | None:
        """The deployment that is worth most within the SLO: without a demand, the most output tokens/s per GPU."""
        return next((outcome for outcome in self.outcomes if outcome.verdict == "meets"), None)

    @property
    def nearest(self) -> RankedDeployment | None:
        """Where none meets the SLO: the deployment that misses it by least."""
        tried = [outcome for outcome in self.outcomes if outcome.trial is not None]
        if self.best is not None or not tried:
            return None
        return min(tried, key=lambda outcome: outcome.trial.excess if outcome.trial else 0.0)


def rank(search: Found, load: OfferedLoad, demand: Demand = _ANY, say: Say = str) -> Ranking:
    """Simulate the deployments that may be worth most, best first. ``say`` is told which one is simulated."""
    plans = [plan for plan in plans_of(search.points) if demand.most_units(plan[0]) != 0]
    outcomes: list[RankedDeployment] = []
    unsimulated = 0
    with caught() as stop:
        for is_apart in (False, True):
            kind = [plan for plan in plans if bool(plan[0].prefill_replicas) == is_apart]
            unsimulated += _contest(kind, load, demand, outcomes, say)
        if not any(outcome.verdict == "meets" for outcome in outcomes):
            _reach(plans, load, outcomes)
    judged = [_judged(outcome, demand) for outcome in outcomes]
    judged.sort(key=lambda outcome: (outcome.verdict != "meets", -_worth(outcome, demand), -outcome.per_gpu))
    return Ranking(tuple(judged), len(plans), stop.is_partial, unsimulated)


def _worth(outcome: RankedDeployment, demand: Demand) -> float:
    return demand.worth(outcome.point, outcome.per_gpu, outcome.output)


def _judged(outcome: RankedDeployment, demand: Demand) -> RankedDeployment:
    """An outcome within the SLO that the demand does not allow serves too little."""
    least = demand.least_per_gpu(outcome.point, 0.0, outcome.output)
    if outcome.verdict == "meets" and (outcome.per_gpu < least or not _worth(outcome, demand)):
        return dataclasses.replace(outcome, verdict="fewer")
    return outcome


def plans_of(points: Sequence[DeploymentPoint]) -> list[list[DeploymentPoint]]:
    """The points of each plan, which differ in their batch."""
    plans: dict[tuple[int, ...], list[DeploymentPoint]] = {}
    for point in points:
        key = id(point.engine), id(point.prefill), point.replicas, point.prefill_replicas
        plans.setdefault(key, []).append(point)
    return list(plans.values())


def _most(plan: Sequence[DeploymentPoint], slo: Slo, slack: float) -> DeploymentPoint | None:
    """The point of a plan with the largest estimated load within ``slack`` times the SLO."""
    within = [point for point in plan if excess(point, slo) <= slack]
    return max(within, key=lambda point: point.per_gpu, default=None)


def _contest(
    plans: Sequence[Sequence[DeploymentPoint]],
    load: OfferedLoad,
    demand: Demand,
    outcomes: list[RankedDeployment],
    say: Say,
) -> int:
    """Append the outcomes of plans of a kind, in order of what their estimates allow; returns how many are left out."""
    bounded: list[tuple[float, DeploymentPoint]] = []  # tokens/s per GPU that a plan may reach, and its estimate
    for plan in plans:
        slack = _SLACK_WITH_EXPERTS if plan[0].engine.model.experts else _SLACK
        if (point := _most(plan, load.slo, slack)) is not None:
            bounded.append((point.per_gpu * slack, _most(plan, load.slo, 1.0) or point))

    def worth(point: DeploymentPoint, per_gpu: float) -> float:
        return demand.worth(point, per_gpu, load.output)

    # A good first result leaves little to simulate: those that are estimated to meet the SLO come first.
    bounded.sort(
        key=lambda entry: (excess(entry[1], load.slo) > 1, -worth(entry[1], entry[1].per_gpu), -entry[1].per_gpu)
    )

    def least_of(point: DeploymentPoint) -> float:
        return demand.least_per_gpu(point, best * (1 + PRECISION), load.output)

    best, pace, tokens = 0.0, _Pace(min(len(bounded), _MOST_SIMULATED)), 0
    for number, (bound, point) in enumerate(bounded):
        if bound <= (least := least_of(point)):
            continue
        if number >= _MOST_SIMULATED or tokens > _MOST_TOKENS:
            return sum(bound > least_of(point) for bound, point in bounded[number:])
        say(f"simulating {point.name}, {pace.text(number)}")
        outcomes.append(outcome_of(point, load, least))
        tokens += outcomes[-1].tokens
        if outcomes[-1].verdict == "meets":
            best = worth(point, outcomes[-1].per_gpu)
    return 0


class _Pace:
    """How many plans of a kind are simulated, and about how long the rest takes, in words."""

    def __init__(self, plans: int) -> None:
        self._plans, self._begin_s = plans, time.monotonic()

    def text(self, done: int) -> str:
        """``done``: plans that are simulated, or need not be."""
        remaining_s = (time.monotonic() - self._begin_s) / max(done, 1) * (self._plans - done)
        duration = f", at most about {remaining_s:.0f} s for the rest of its kind" if done else ""
        return f"plan {done + 1} of at most {self._plans}{duration}"


def _reach(plans: Sequence[Sequence[DeploymentPoint]], load: OfferedLoad, outcomes: list[RankedDeployment]) -> None:
    """Append the outcomes of the plans that estimates place nearest to the SLO, unless they have one."""
    tried = {id(outcome.point.engine) for outcome in outcomes}
    untried = sorted(
        (min(plan, key=lambda point: excess(point, load.slo)) for plan in plans if id(plan[0].engine) not in tried),
        key=lambda point: (excess(point, load.slo), point.prefill_replicas),
    )
    for point in untried[:_NEAREST]:
        outcomes.append(outcome_of(point, load, 0.0, starts_idle=True))


def deployment_of(point: DeploymentPoint) -> Deployment:
    """The engines of a point behind a router."""
    deployment = Deployment(point.engine, point.replicas, "least-loaded")
    if point.prefill_replicas:
        prefill = point.prefill or point.engine
        return dataclasses.replace(deployment, prefill=prefill, prefill_replicas=point.prefill_replicas)
    return deployment


def outcome_of(
    point: DeploymentPoint, load: OfferedLoad, least_per_gpu: float, *, starts_idle: bool = False
) -> RankedDeployment:
    """Simulate a deployment under the largest load within the SLO, if it exceeds ``least_per_gpu`` tokens/s.

    ``starts_idle``: the search for it starts at the lowest rate, since the SLO is probably missed there already.
    """
    stay_s = RankedDeployment(point, "misses", None, load.output).stay_s
    deployment = deployment_of(point)
    lowest = IDLE / stay_s
    guess, least = point.tokens_per_s / load.output, least_per_gpu * point.gpus / load.output

    simulated: list[int] = []  # tokens of trials

    def run(rate: float, fewest: int = JUDGED) -> Trial:
        result = trial(deployment, load, rate, stay_s, fewest=fewest)
        simulated.append(result.tokens)
        return result

    queue_rates: list[float] = []  # once it is sought

    def grows_from() -> float:
        if not queue_rates:
            queue_rates.append(sustainable_rate(deployment, load.workload) or guess)
        return STEADY * queue_rates[0]

    try:
        if load.slo.bounds and least:
            glance = run(least, _GLANCED)
            if _clearly_misses(glance, load.slo):
                return RankedDeployment(point, "fewer", glance, load.output, tokens=sum(simulated))
        if load.slo.bounds:
            result = _within(run, lowest if starts_idle else guess, lowest, least, grows_from)
        elif not (result := run(grows_from())).meets:  # without an SLO any rate is good until a queue grows
            result = _within(run, result.rate, lowest, 0.0, grows_from)
    except Exception as error:  # noqa: BLE001  one deployment must not lose the others
        return RankedDeployment(point, "misses", None, load.output, reason_of(error))
    if result.meets:
        verdict: Verdict = "meets" if result.rate >= least else "fewer"
    else:
        verdict = "fewer" if least else "misses"
    queue_rate = queue_rates[0] if queue_rates and result.meets else None
    return RankedDeployment(point, verdict, result, load.output, queue_rate=queue_rate, tokens=sum(simulated))


def _clearly_misses(glance: Trial, slo: Slo) -> bool:
    """Whether a short trial misses a limit by so much that a long one would miss it, too."""
    if not glance.figures:
        return False
    values = {name: glance.figures[f"{slo.statistics[name]}_{name}_ms"] for name in slo.bounds}
    return any(value > _CLEAR_MISS[name] * slo.bounds[name] for name, value in values.items())


def _within(
    run: Callable[[float], Trial], guess: float, lowest: float, least: float, grows_from: Callable[[], float]
) -> Trial:
    """The largest rate within the SLO at which no queue grows: near saturation too slowly for a trial to show."""
    result = largest(run, guess, lowest, least)
    sustained = grows_from() if result.meets else result.rate
    if result.rate > sustained:
        return largest(run, sustained, lowest) if not (reached := run(sustained)).meets else reached
    return result
