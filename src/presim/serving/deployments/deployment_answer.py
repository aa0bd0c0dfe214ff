"""The answer to a question: the deployment that is worth most, as often as it is needed, and the next best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterator, Sequence

from presim.serving.deployments.capacity import OfferedLoad
from presim.serving.deployments.demand import Demand
from presim.serving.deployments.deployment_point import DeploymentPoint
from presim.serving.deployments.deployment_ranking import RankedDeployment, Ranking, Say, outcome_of
from presim.serving.deployments.sensitivity import Confirmed, confirmed, with_curve, with_doubt
from presim.serving.engine_versions import EngineRelease

_NEXT = 2  # plans beside the best that are bisected to their own largest load
_SHOWN_LOSSES = 5


@dataclasses.dataclass(frozen=True)
class DeploymentAnswer:
    """Deployments with all their units, the best first."""

    best: Confirmed
    following: Confirmed | None  # the next best
    units: int
    spare_units: int  # beyond those that the asked rate needs, so that one may fail
    losses: tuple[tuple[str, float], ...]  # what is other than in the best, and the share that it is worth less
    overlaps: bool  # whether the next best may be the best, as prices of steps are uncertain by 10 %


def answer(ranking: Ranking, load: OfferedLoad, demand: Demand, say: Say = str) -> DeploymentAnswer | None:
    """Confirm the best deployments of a ranking; None where none meets the SLO and the demand."""
    valued = by_worth(_confirmed(ranking, load, demand, say), demand, load.output)
    if not valued:
        return None
    say("simulating the best with steps that take 10 % more or less time, and at other loads")
    best = with_doubt(valued.pop(), load)
    units = _units(best, demand)
    following = with_doubt(valued.pop(), load) if valued else None
    return DeploymentAnswer(
        _multiplied(with_curve(best, load), units),
        _multiplied(following, _units(following, demand)) if following else None,
        units,
        int(demand.rate is not None),
        tuple(_losses(_simulated(best, ranking), ranking.outcomes, demand)),
        following is not None and _worth_at(following, 1, demand) >= _worth_at(best, 0, demand),
    )


def _worth_at(candidate: Confirmed, end: int, demand: Demand) -> float:
    """What a deployment is worth if its steps take 10 % more time (0), or less (1)."""
    point, output = candidate.outcome.point, candidate.outcome.output
    return demand.worth(point, candidate.rates[end] * output / point.gpus, output)


def by_worth(candidates: Sequence[Confirmed], demand: Demand, output: float) -> list[Confirmed]:
    """Those that meet the SLO and the demand, the best last; of two for the same money, the faster for each GPU.

    ``output``: tokens of a request, in the mean.
    """

    def worth(candidate: Confirmed) -> tuple[float, float]:
        per_gpu = candidate.outcome.per_gpu
        return demand.worth(candidate.outcome.point, per_gpu, output), per_gpu

    meeting = [entry for entry in candidates if entry.outcome.verdict == "meets" and worth(entry)[0]]
    return sorted(meeting, key=worth)


def _confirmed(ranking: Ranking, load: OfferedLoad, demand: Demand, say: Say) -> list[Confirmed]:
    """The candidates that may be the best or the next, under further draws of the load.

    A plan serves no more than in the trial of the ranking: one that is worth less there than two others are already
    known to be is left out.
    """

    def worth(outcome: RankedDeployment) -> float:
        return demand.worth(outcome.point, outcome.per_gpu, load.output)

    candidates = list(_candidates(ranking))
    candidates[1:] = sorted(candidates[1:], key=worth, reverse=True)
    valued: list[Confirmed] = []
    for number, outcome in enumerate(candidates, 1):
        if len(valued) > 1 and worth(outcome) <= worth(valued[-2].outcome):
            continue
        say(f"simulating further draws of the load for {outcome.point.name}, plan {number} of at most {1 + _NEXT}")
        settled = outcome if outcome.verdict == "meets" else outcome_of(outcome.point, load, 0.0)
        if settled.verdict == "meets":
            valued = by_worth([*valued, confirmed(settled, load)], demand, load.output)
    return valued


def _candidates(ranking: Ranking) -> Iterator[RankedDeployment]:
    """The best, and the plans that may follow it."""
    best = ranking.best
    if best is None:
        return
    yield best
    tried = [outcome for outcome in ranking.outcomes if outcome is not best and outcome.trial is not None]
    following = [outcome for outcome in tried if outcome.verdict == "meets"][:_NEXT]
    fewer = sorted(
        (outcome for outcome in tried if outcome.verdict == "fewer"),
        key=lambda outcome: outcome.trial.excess if outcome.trial else 0.0,
    )
    seen = {_proportions(best.point)}
    for outcome in [*following, *fewer]:
        if len(seen) > _NEXT or _proportions(outcome.point) in seen:
            continue
        seen.add(_proportions(outcome.point))
        yield outcome


def _proportions(point: DeploymentPoint) -> tuple[Hashable, ...]:
    """Equal for 2P2D and 4P4D of the same engines, whatever the most tokens of their steps are."""
    common = math.gcd(point.replicas, point.prefill_replicas)
    engines = [point.engine, *([point.prefill] if point.prefill else [])]
    plans = [(engine.cluster.gpu.id, dataclasses.replace(engine.plan, max_num_batched_tokens=1)) for engine in engines]
    return *plans, point.replicas // common, point.prefill_replicas // common


def _units(candidate: Confirmed, demand: Demand) -> int:
    assert candidate.outcome.trial is not None
    return demand.units(candidate.outcome.point, candidate.outcome.trial.rate)


def _multiplied(candidate: Confirmed, units: int) -> Confirmed:
    """So many of the same deployment, which serve so many times the load."""
    outcome = candidate.outcome
    assert outcome.trial is not None
    point = dataclasses.replace(
        outcome.point,
        replicas=outcome.point.replicas * units,
        prefill_replicas=outcome.point.prefill_replicas * units,
        tokens_per_s=outcome.point.tokens_per_s * units,
        gpus=outcome.point.gpus * units,
    )
    result = dataclasses.replace(
        outcome.trial, rate=outcome.trial.rate * units, in_flight=outcome.trial.in_flight * units
    )
    slow, fast = candidate.rates
    return dataclasses.replace(
        candidate,
        outcome=dataclasses.replace(outcome, point=point, trial=result),
        rates=(slow * units, fast * units),
        queue_rate=candidate.queue_rate * units,
        curve=tuple(dataclasses.replace(result, rate=result.rate * units) for result in candidate.curve),
    )


def _simulated(candidate: Confirmed, ranking: Ranking) -> RankedDeployment:
    """The outcome that was confirmed, at the load of the single draw by which all others were judged."""
    same = (outcome for outcome in ranking.outcomes if outcome.point is candidate.outcome.point)
    return next((outcome for outcome in same if outcome.verdict == "meets"), candidate.outcome)


def _losses(
    best: RankedDeployment, outcomes: tuple[RankedDeployment, ...], demand: Demand
) -> Iterator[tuple[str, float]]:
    """The least loss of worth for each set of differences from the best, of plans whose largest load is known."""
    traits = _traits(best.point)
    best_worth = demand.worth(best.point, best.per_gpu, best.output)
    losses: dict[str, float] = {}
    for outcome in outcomes:
        other = _traits(outcome.point)
        if outcome.verdict != "meets" or other == traits:
            continue
        label = ", ".join(other[name] for name in other if other[name] not in ("", traits[name]))
        loss = 1 - demand.worth(outcome.point, outcome.per_gpu, outcome.output) / best_worth
        losses[label] = min(loss, losses.get(label, loss))
    worse = [(label, loss) for label, loss in losses.items() if loss > 0]
    yield from sorted(worse, key=lambda item: item[1])[:_SHOWN_LOSSES]


def _prefill_words(point: DeploymentPoint) -> str:
    """The engines that only prefill: their GPU, where it is another, and their tensor parallelism."""
    if point.prefill is None:
        return ""
    gpu_id = point.prefill.cluster.gpu.id
    gpu = "" if gpu_id == point.engine.cluster.gpu.id else f"on {gpu_id} "
    return f"prefill {gpu}TP{point.prefill.plan.tp}"


def _traits(point: DeploymentPoint) -> dict[str, str]:
    plan = point.engine.plan
    return {
        "gpu": point.engine.cluster.gpu.id,
        "engine": EngineRelease(plan.engine, plan.engine_version).text,
        "kind": "prefill and decode apart" if point.prefill_replicas else "prefill and decode together",
        "plan": plan.text,
        "prefill": _prefill_words(point),
        "ratio": f"{point.prefill_replicas}P{point.replicas}D" if point.prefill_replicas else "",
        "budget": f"{plan.max_num_batched_tokens} tokens a step",
    }
