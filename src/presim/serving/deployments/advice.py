"""What would help where no deployment meets an SLO: a looser one, more GPUs, weights of fewer bits, another GPU."""

from __future__ import annotations

import dataclasses
import math

from presim.composition.models.description import Model
from presim.hardware import catalogue
from presim.serving.answer.metrics import Slo
from presim.serving.deployments.demand import Demand
from presim.serving.deployments.deployment_point import DeploymentPoint, excess
from presim.serving.deployments.deployment_ranking import RankedDeployment
from presim.serving.deployments.deployment_search import Space, estimates
from presim.serving.deployments.unfit import FEWER_BITS
from presim.serving.serving_plan import WEIGHT_BYTES
from presim.units import plain

_TIMES = 4  # as many GPUs at most are looked at
_MARGIN = 1.02  # of a looser limit, beyond the simulated figure


def advice(nearest: RankedDeployment, model: Model, space: Space, prompt: int, output: int, slo: Slo) -> list[str]:
    """Sentences: the SLO that the nearest deployment meets, and deployments that are estimated to meet this.

    ``prompt``, ``output``: tokens of a request, in the mean.
    """
    request = _MeanRequest(model, prompt, output, slo)
    sentences = _looser(nearest, slo), _larger(request, space), _fewer_bits(request, space), _other_gpu(request, space)
    return [sentence for sentence in sentences if sentence]


@dataclasses.dataclass(frozen=True)
class _MeanRequest:
    """A request of mean lengths, and its SLO."""

    model: Model
    prompt: int  # tokens
    output: int  # tokens
    slo: Slo

    def smallest(self, space: Space, sizes: set[int] | None = None) -> DeploymentPoint | None:
        """The engine of a space with the fewest GPUs, of these numbers if given, that is estimated to meet the SLO."""
        # Neither stages nor shorter steps lower the latency of a lone request.
        single = dataclasses.replace(space, disaggregated=False, pps=(1,), budgets=space.budgets[-1:])
        points = estimates(self.model, single, self.prompt, self.output, sizes)
        within = (point for point in points if excess(point, self.slo) <= 1)
        return min(within, key=lambda point: (point.gpus, -point.per_gpu), default=None)


def shortfall(best: RankedDeployment, demand: Demand) -> str:
    """Why nothing serves what is demanded: the most that the limits allow, in a sentence."""
    assert best.trial is not None
    cost = demand.per_million(best.point, best.per_gpu)
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


def _looser(nearest: RankedDeployment, slo: Slo) -> str | None:
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


def _larger(request: _MeanRequest, space: Space) -> str | None:
    """The fewest GPUs beyond the limit with which an engine alone is estimated to meet the SLO."""
    max_gpus = space.most_gpus * _TIMES
    shapes = {tp for tp in space.tps if space.most_gpus < tp <= max_gpus}
    if not shapes:
        return None
    best = request.smallest(dataclasses.replace(space, most_gpus=max_gpus), shapes)
    if best is None:
        return f"More GPUs: with up to {max(shapes)} no engine is estimated to meet it."
    return f"More GPUs: --max-gpus {best.gpus} allows {best.name}, which is estimated to meet it."


def _fewer_bits(request: _MeanRequest, space: Space) -> str | None:
    """The first type of weights, of ever fewer bits, with which an engine is estimated to meet the SLO."""
    for weights in FEWER_BITS:
        if weights in space.weights or WEIGHT_BYTES[weights] >= WEIGHT_BYTES[request.model.checkpoint.weights]:
            continue
        best = request.smallest(dataclasses.replace(space, weights=(weights,)))
        if best is not None:
            return f"Fewer bits: a checkpoint for --weights {weights} allows {best.name}, estimated to meet it."
    return None


def _other_gpu(request: _MeanRequest, space: Space) -> str | None:
    """The GPU of the least memory bandwidth, above that of those asked, that is estimated to meet the SLO."""
    largest = max(catalogue.gpu(name).memory_bytes_per_s for name in space.gpus)
    faster_gpus = [gpu for gpu in catalogue.gpus() if gpu.vendor == "nvidia" and gpu.memory_bytes_per_s > largest]
    for gpu in sorted(faster_gpus, key=lambda gpu: (gpu.memory_bytes_per_s, gpu.id)):
        best = request.smallest(dataclasses.replace(space, gpus=(gpu.id,)))
        if best is not None:
            return f"Another GPU: --gpu {gpu.id} allows {best.name}, which is estimated to meet it."
    return None
