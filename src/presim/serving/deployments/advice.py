"""What would help where no deployment meets an SLO: a looser one, or more GPUs."""

from __future__ import annotations

import dataclasses
import math

from presim.composition.models.description import Model
from presim.serving.answer.metrics import Slo
from presim.serving.deployments.demand import Demand
from presim.serving.deployments.deployment_ranking import SimulatedDeployment
from presim.serving.deployments.deployment_search import Space, estimates, excess
from presim.units import plain

_TIMES = 4  # as many GPUs at most are looked at
_MARGIN = 1.02  # of a looser limit, beyond the simulated figure


def advice(nearest: SimulatedDeployment, model: Model, space: Space, prompt: int, output: int, slo: Slo) -> list[str]:
    """Sentences: the SLO that the nearest deployment meets, and one with more GPUs that is estimated to meet this."""
    return [sentence for sentence in (_looser(nearest, slo), _larger(model, space, prompt, output, slo)) if sentence]


def shortfall(best: SimulatedDeployment, demand: Demand) -> str:
    """Why nothing serves what is demanded: the most that the limits allow, in a sentence."""
    assert best.trial is not None
    gpu = best.point.engine.cluster.gpu.id
    cost = demand.per_million(gpu, best.per_gpu)
    if demand.rate is None and demand.cost is not None and cost is not None:
        return (
            f"No deployment within the SLO costs {demand.cost:g} or less per million output tokens: the cheapest, "
            f"{best.point.name}, costs {plain(cost)}. Allow more with --max-cost, or a looser SLO."
        )
    units = demand.relaxed().units(best.point, best.trial.rate)
    asked_rate = demand.rate or 0.0
    needed = math.ceil(asked_rate / best.trial.rate) * best.point.gpus
    return (
        f"No deployment serves {asked_rate:g} requests/s within the limits: {units} times {best.point.name} serve "
        f"{plain(best.trial.rate * units)} requests/s on {units * best.point.gpus} GPUs, and {needed} GPUs are needed. "
        "Allow more, or ask for a lower rate."
    )


def _looser(nearest: SimulatedDeployment, slo: Slo) -> str | None:
    result = nearest.trial
    if result is None or not math.isfinite(result.excess):
        return None
    options = []
    for name, bound in slo.bounds.items():
        statistic = slo.statistics[name]
        figure = result.figures[f"{statistic}_{name}_ms"]
        options.append(f"--slo {name}:{bound if figure <= bound else _rounded_up(figure * _MARGIN):g}@{statistic}")
    served = f"{nearest.point.name} at {result.rate:.2g} requests/s, nearly idle"
    return f"A looser SLO: {' '.join(options)} is met by {served}."


def _rounded_up(value: float) -> float:
    """To three digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit) * unit


def _larger(model: Model, space: Space, prompt: int, output: int, slo: Slo) -> str | None:
    """The fewest GPUs beyond the limit with which an engine alone is estimated to meet the SLO."""
    max_gpus = space.most_gpus * _TIMES
    larger = dataclasses.replace(space, most_gpus=max_gpus, disaggregated=False)
    shapes = {tp * pp for tp in space.tps for pp in space.pps if space.most_gpus < tp * pp <= max_gpus}
    if not shapes:
        return None
    points = [point for point in estimates(model, larger, prompt, output, shapes) if excess(point, slo) <= 1]
    best = min(points, key=lambda point: (point.gpus, -point.per_gpu), default=None)
    if best is None:
        return f"More GPUs: with up to {max(shapes)} no engine is estimated to meet it."
    return f"More GPUs: --max-gpus {best.gpus} allows {best.name}, which is estimated to meet it."
