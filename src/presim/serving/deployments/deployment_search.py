"""Search deployments of a model: plans, batch limits, and the split of prefill and decode, under an SLO.

Each engine is priced once. A deployment's steady state follows from its step times in closed form (`estimate`), which
takes microseconds. `ranking` simulates those that may be best request by request, with the scheduler's real decisions.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

from presim.composition.models.description import Model
from presim.cost.estimators import check, notes
from presim.errors import InputError, PresimError, reason_of
from presim.hardware import Gpu, catalogue
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.answer.metrics import Slo
from presim.serving.defaults import with_defaults
from presim.serving.deployments.deployment_point import DeploymentPoint, excess, pareto
from presim.serving.deployments.disaggregation import apart
from presim.serving.deployments.estimate import accepted_tokens, steady
from presim.serving.drafting import Drafting
from presim.serving.engine_versions import EngineRelease
from presim.serving.serving_plan import Cache, Offload, ServingPlan, Weights
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.pricer import PricedWork
from presim.serving.steps.times import PricedEngine, build
from presim.serving.weight_types import typed
from presim.system.interrupts import caught

_BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 768, 1024)

_OTHER_SCHEDULER = "TensorRT-LLM's own scheduler is not simulated: vLLM's stands in for it."
_SEARCHED = ("tp", "pp", "dp", "ep", "cache", "max_num_batched_tokens", "offload")  # fields of a plan

SEQUENCES = 1024  # of an engine at most: vLLM's default from 70 GiB of memory on


@dataclasses.dataclass(frozen=True)
class Space:
    """Values to try."""

    gpus: tuple[str, ...]
    tps: tuple[int, ...] = (1, 2, 4, 8)
    pps: tuple[int, ...] = (1, 2)
    weights: tuple[Weights | None, ...] = (None, "fp8")  # None: as the checkpoint has them
    budgets: tuple[int, ...] = (2048, 8192, 16384)  # max_num_batched_tokens, or SGLang's chunked_prefill_size
    engines: tuple[EngineRelease, ...] = (EngineRelease("vllm"),)
    most_gpus: int = 16
    disaggregated: bool = True
    caches: tuple[Cache, ...] = ("bf16",)  # empty: `verbs.deploy.decide` takes the checkpoint's
    dps: tuple[int, ...] = (1, 2, 4, 8, 16, 32)  # data-parallel ranks, which share experts; 1 for models without
    eps: tuple[bool, ...] = (True, False)  # whether ranks hold whole experts, or a part of each
    drafting: Drafting | None = None
    offloads: tuple[Offload | None, ...] = (None,)  # host memory of an engine for cached blocks
    cached: int = 0  # tokens of a prompt that the prefix cache has
    overheads: Overheads | None = None  # of a calibration by one of the space's plans
    prices: tuple[Path, ...] = ()  # folders with the user's own tables and models


@dataclasses.dataclass(frozen=True)
class Found:
    """Estimates of all deployments of a space."""

    points: tuple[DeploymentPoint, ...]
    refused: dict[str, int]  # number of invalid plans by reason
    pareto: tuple[DeploymentPoint, ...]  # Pareto front of the points within the SLO
    not_modelled: tuple[str, ...]  # in sentences
    partial: bool = False  # a signal ended it before all plans were evaluated


class _SharedPrices:
    """Prices of work that the engines of a search share: of budgets all, of other plans all but collectives.

    The price of a kernel follows from its sizes, the GPU and the engine; that of a collective from the ranks, too.
    """

    def __init__(self) -> None:
        self._plan_key: object = None
        self._by_gpu: dict[tuple[str, str], PricedWork] = {}

    def of(self, gpu: str, plan: ServingPlan) -> PricedWork:
        """What has a price for a plan on a GPU; it is added to."""
        gpu_key = gpu, plan.kernels
        plan_key = gpu, dataclasses.replace(plan, max_num_batched_tokens=1, offload=None)
        if plan_key != self._plan_key:
            earlier = self._by_gpu.get(gpu_key, PricedWork())
            self._plan_key, self._by_gpu[gpu_key] = plan_key, earlier.without_collectives()
        return self._by_gpu[gpu_key]


def engines(model: Model, space: Space, longest: int, sizes: set[int] | None = None) -> Iterator[PricedEngine | str]:
    """Each plan of the space, or those with so many GPUs, as an engine, or the reason why it is invalid."""
    ranks = space.dps if model.experts else (1,)
    prices = _SharedPrices()
    whole_experts = space.eps if model.experts else (False,)
    degrees = (space.engines, space.gpus, space.tps, space.pps, ranks, whole_experts)
    types_and_limits = (space.weights, space.caches, space.budgets, space.offloads)
    for release, gpu, tp, pp, dp, ep, weights, cache, budget, offload in itertools.product(*degrees, *types_and_limits):
        gpus = tp * pp * dp
        if gpus > space.most_gpus or (sizes is not None and gpus not in sizes) or (dp > 1 and pp > 1):
            continue
        if ep and tp * dp == 1:  # one rank has all experts
            continue
        if release.name == "sglang" and pp > 1:
            yield "SGLang's pipeline stages are not modelled"
            continue
        if weights == "fp8" and catalogue.gpu(gpu).peak("fp8") is None:
            yield f"{gpu} does not support FP8"
            continue
        if None in space.weights and weights and is_of_checkpoint(model, weights):
            continue
        draft = ServingPlan(tp=tp, pp=pp, dp=dp, ep=ep, cache=cache, max_num_batched_tokens=budget, offload=offload)
        try:
            plan = plan_of(draft, release, model, catalogue.gpu(gpu), space, longest, weights)
            cluster = choose_cluster(gpu=gpu, world_size=plan.gpus)
            yield build(model, plan, cluster, space.overheads, space.prices, prices.of(gpu, plan))
        except PresimError as error:
            yield str(error).split(":")[0]
        except Exception as error:  # noqa: BLE001  a bug in one plan must not lose the others
            yield f"{draft.text}: {reason_of(error)}"


def plan_of(
    draft: ServingPlan,
    release: EngineRelease,
    model: Model,
    gpu: Gpu,
    space: Space,
    longest: int,
    weights: Weights | None,
) -> ServingPlan:
    """The plan of an engine as its launch files start it: what they leave to the engine has its defaults.

    ``draft``: parallelism, cache, its host memory, and tokens of a step. ``longest``: tokens of the longest request.

    Raises:
        InputError: the model cannot have these weights.
    """
    fields = {
        **{name: getattr(draft, name) for name in _SEARCHED},
        "drafting": space.drafting,
        "engine_version": release.version,
        "max_num_seqs": SEQUENCES,
        "max_model_len": min(longest, model.longest),
        "kernels": release.name,
    }
    return typed(with_defaults(fields, model, gpu), model, weights, None)


def is_of_checkpoint(model: Model, weights: Weights) -> bool:
    """Whether a type is the checkpoint's own, or the checkpoint is one that engines do not quantise again."""
    return weights == model.checkpoint.weights or bool(model.checkpoint.method)


def search(model: Model, space: Space, prompt: int, output: int, slo: Slo, *, longest: int | None = None) -> Found:
    """Estimate all deployments of the space for a prompt and an output in tokens, or the longest request if given.

    Raises:
        InputError: no plan can serve such requests, or prices cannot be read.
    """
    limits = _not_modelled(space)
    points: list[DeploymentPoint] = []
    refused: dict[str, int] = {}
    valid: list[PricedEngine] = []
    with caught() as stop:
        for engine in engines(model, space, (longest or prompt + output) + 16):
            evaluated = engine if isinstance(engine, str) else _points(engine, prompt, output, space)
            if isinstance(evaluated, str):
                refused[evaluated] = refused.get(evaluated, 0) + 1
            else:
                valid.append(engine)  # type: ignore[arg-type]
                points += evaluated
        if space.disaggregated:
            points.extend(apart(valid, _BATCHES, prompt, output, cached=space.cached, most_gpus=space.most_gpus))
    stop.unless(points)
    if not points:
        why = "; ".join(f"{count} x {reason}" for reason, count in sorted(refused.items(), key=lambda it: -it[1])[:3])
        raise InputError(f"no plan can serve {prompt} + {output} tokens ({why}); allow more GPUs or smaller weights")
    within = [point for point in points if excess(point, slo) <= 1]
    return Found(tuple(points), refused, pareto(within), limits, stop.is_partial)


def estimates(
    model: Model, space: Space, prompt: int, output: int, sizes: set[int] | None = None
) -> Iterator[DeploymentPoint]:
    """The deployments of the space's engines, or those with so many GPUs; engines that are not valid are left out."""
    for engine in engines(model, space, prompt + output + 16, sizes):
        evaluated = engine if isinstance(engine, str) else _points(engine, prompt, output, space)
        yield from () if isinstance(evaluated, str) else evaluated


def _points(engine: PricedEngine, prompt: int, output: int, space: Space) -> list[DeploymentPoint] | str:
    """The deployments of an engine, or a fault of presim's in a sentence, which keeps the other engines."""
    try:
        return [point for batch in _BATCHES for point in _of(engine, batch, prompt, output, space)]
    except Exception as error:  # noqa: BLE001
        return f"{engine.plan.text}: {reason_of(error)}"


def _not_modelled(space: Space) -> tuple[str, ...]:
    """What the search leaves out, and rows of the user's prices that it cannot use."""
    check(space.prices)
    schedulers = [_OTHER_SCHEDULER] if any(release.name == "trtllm" for release in space.engines) else []
    unused = [note for gpu in space.gpus for note in notes(catalogue.gpu(gpu), space.prices)]
    return tuple(dict.fromkeys([*schedulers, *unused]))


def _of(engine: PricedEngine, batch: int, prompt: int, output: int, space: Space) -> list[DeploymentPoint]:
    """An engine that does both, with ``batch`` requests in flight on each of its data-parallel ranks."""
    state = steady(engine, batch, prompt, output, space.cached)
    if state is None:
        return []
    ttft, tpot, tokens = state
    plan, accepted = engine.plan, accepted_tokens(engine.plan)
    served = tokens * plan.dp * accepted
    return [DeploymentPoint(engine, batch * plan.dp, 1, 0, ttft, tpot / accepted, served, plan.gpus, output)]
