"""Search deployments of a model: plans, batch limits, and the split of prefill and decode, under an SLO.

Each engine is priced once. A deployment's steady state follows from its step times in closed form (`estimate`), which
takes microseconds. `ranking` simulates those that may be best request by request, with the scheduler's real decisions.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from presim.composition.models.description import Model
from presim.cost.estimators import check, notes
from presim.errors import InputError, PresimError, reason_of
from presim.hardware import catalogue
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.answer.metrics import Slo
from presim.serving.deployments.estimate import decoding, prefilling, steady
from presim.serving.drafting import Drafting
from presim.serving.serving_plan import Cache, Scheduler, ServingPlan, Weights
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.pricer import PricedWork
from presim.serving.steps.times import PricedEngine, build
from presim.serving.weight_types import typed
from presim.system.interrupts import caught

_BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 768, 1024)

SEQUENCES = 1024  # of an engine at most: vLLM's default from 70 GiB of memory on
_RATIOS = tuple(itertools.product((1, 2, 3, 4), (1, 2, 3, 4)))  # engines that prefill, and that decode
_SLACK = 0.9  # of what prefill engines can take: their queue needs some


@dataclasses.dataclass(frozen=True)
class Space:
    """Values to try."""

    gpus: tuple[str, ...]
    tps: tuple[int, ...] = (1, 2, 4, 8)
    pps: tuple[int, ...] = (1, 2)
    weights: tuple[Weights | None, ...] = (None, "fp8")  # None: as the checkpoint has them
    budgets: tuple[int, ...] = (2048, 8192, 16384)  # max_num_batched_tokens, or SGLang's chunked_prefill_size
    engines: tuple[Scheduler, ...] = ("vllm",)
    most_gpus: int = 16
    disaggregated: bool = True
    caches: tuple[Cache, ...] = ("bf16",)  # empty: `verbs.deploy.decide` takes the checkpoint's
    dps: tuple[int, ...] = (1, 2, 4, 8, 16)  # data-parallel ranks, which share experts; 1 for models without
    drafting: Drafting | None = None
    engine_version: str | None = None
    cached: int = 0  # tokens of a prompt that the prefix cache has
    overheads: Overheads | None = None  # of a calibration by one of the space's plans
    prices: tuple[Path, ...] = ()  # folders with the user's own tables and models


@dataclasses.dataclass(frozen=True)
class DeploymentPoint:
    """One deployment and its steady state at one load."""

    engine: PricedEngine = dataclasses.field(repr=False, compare=False)
    batch: int  # requests in flight per engine
    replicas: int
    prefill_replicas: int  # 0: engines do both prefill and decode
    ttft_ms: float
    tpot_ms: float
    tokens_per_s: float  # all replicas together
    gpus: int
    output: int = 1  # tokens of a request, in the mean
    prefill: PricedEngine | None = dataclasses.field(default=None, repr=False, compare=False)  # of ``prefill_replicas``

    @property
    def e2el_ms(self) -> float:
        """From sending a request to its last token."""
        return self.ttft_ms + self.tpot_ms * max(self.output - 1, 0)

    @property
    def per_gpu(self) -> float:
        """Output tokens/s per GPU."""
        return self.tokens_per_s / self.gpus

    @property
    def per_user(self) -> float:
        """Output tokens/s of one request."""
        return 1e3 / self.tpot_ms

    @property
    def name(self) -> str:
        """The deployment without its load."""
        plan, cluster = self.engine.plan, self.engine.cluster
        count = f"{self.replicas} x " if not self.prefill_replicas else f"{self.prefill_replicas}P{self.replicas}D x "
        engine = "SGLang, " if plan.decides == "sglang" else ""
        if self.prefill is not None and self.prefill.plan.tp != plan.tp:
            count = f"{self.prefill_replicas}P{self.replicas}D x "
            engine += f"prefill TP{self.prefill.plan.tp}, decode "
        return f"{count}{cluster.gpu.id} {engine}{plan.text}, {plan.max_num_batched_tokens} tokens a step"

    @property
    def text(self) -> str:
        """Short description of the deployment and its load."""
        return f"{self.name}, {self.batch} in flight"


@dataclasses.dataclass(frozen=True)
class Found:
    """Estimates of all deployments of a space."""

    points: tuple[DeploymentPoint, ...]
    refused: dict[str, int]  # number of invalid plans by reason
    pareto: tuple[DeploymentPoint, ...]  # Pareto front of the points within the SLO
    not_modelled: tuple[str, ...]  # in sentences
    partial: bool = False  # a signal ended it before all plans were evaluated


def engines(model: Model, space: Space, longest: int, sizes: set[int] | None = None) -> Iterator[PricedEngine | str]:
    """Each plan of the space, or those with so many GPUs, as an engine, or the reason why it is invalid."""
    ranks = space.dps if model.experts else (1,)
    shared: tuple[object, PricedWork] = None, PricedWork()
    for name, gpu, tp, pp, dp, weights, cache, budget in itertools.product(
        space.engines, space.gpus, space.tps, space.pps, ranks, space.weights, space.caches, space.budgets
    ):
        gpus = tp * pp * dp
        if gpus > space.most_gpus or (sizes is not None and gpus not in sizes) or (dp > 1 and pp > 1):
            continue
        if name == "sglang" and pp > 1:
            yield "SGLang's pipeline stages are not modelled"
            continue
        if weights == "fp8" and catalogue.gpu(gpu).peak("fp8") is None:
            yield f"{gpu} does not support FP8"
            continue
        if None in space.weights and weights and is_of_checkpoint(model, weights):
            continue
        plan = ServingPlan(
            tp=tp,
            pp=pp,
            dp=dp,
            ep=dp > 1,
            cache=cache,
            drafting=space.drafting,
            engine_version=space.engine_version,
            max_num_batched_tokens=budget,
            max_num_seqs=SEQUENCES,
            max_model_len=min(longest, model.longest),
            kernels=name,
        )
        try:
            plan = typed(plan, model, weights, None)
            cluster = choose_cluster(gpu=gpu, world_size=plan.gpus)
            if shared[0] != (key := (gpu, dataclasses.replace(plan, max_num_batched_tokens=1))):
                shared = key, PricedWork()  # budgets are the innermost values, so one plan's prices are kept
            yield build(model, plan, cluster, space.overheads, space.prices, shared[1])
        except PresimError as error:
            yield str(error).split(":")[0]
        except Exception as error:  # noqa: BLE001  a bug in one plan must not lose the others
            yield f"{plan.text}: {reason_of(error)}"


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
        for prefill, decode in _pairs(valid) if space.disaggregated else ():
            points += _apart(prefill, decode, prompt, output, space)
    stop.unless(points)
    if not points:
        why = "; ".join(f"{count} x {reason}" for reason, count in sorted(refused.items(), key=lambda it: -it[1])[:3])
        raise InputError(f"no plan can serve {prompt} + {output} tokens ({why}); allow more GPUs or smaller weights")
    within = [point for point in points if excess(point, slo) <= 1]
    return Found(tuple(points), refused, pareto(within), limits, stop.is_partial)


def estimates(model: Model, space: Space, prompt: int, output: int, sizes: set[int]) -> Iterator[DeploymentPoint]:
    """The deployments of the space's engines with so many GPUs; engines that are not valid are left out."""
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
    return tuple(dict.fromkeys(note for gpu in space.gpus for note in notes(catalogue.gpu(gpu), space.prices)))


def _of(engine: PricedEngine, batch: int, prompt: int, output: int, space: Space) -> list[DeploymentPoint]:
    """An engine that does both, with ``batch`` requests in flight on each of its data-parallel ranks."""
    state = steady(engine, batch, prompt, output, space.cached)
    if state is None:
        return []
    ttft, tpot, tokens = state
    plan, accepted = engine.plan, _accepted(engine.plan)
    served = tokens * plan.dp * accepted
    return [DeploymentPoint(engine, batch * plan.dp, 1, 0, ttft, tpot / accepted, served, plan.gpus, output)]


def _accepted(plan: ServingPlan) -> float:
    """Tokens that a decoding step yields, in the mean."""
    if plan.drafting is None:
        return 1.0
    likely = plan.drafting.acceptance
    return sum(likely**count for count in range(plan.drafting.tokens + 1))


def _pairs(valid: Sequence[PricedEngine]) -> Iterator[tuple[PricedEngine, PricedEngine]]:
    """Engines that prefill and engines that decode, which differ in tensor parallelism alone."""
    alike: dict[tuple[str, ServingPlan], list[PricedEngine]] = {}
    for engine in valid:
        key = engine.cluster.gpu.id, dataclasses.replace(engine.plan, tp=1)
        alike.setdefault(key, []).append(engine)
    for group in alike.values():
        yield from itertools.product(group, group)


def _apart(
    prefill: PricedEngine, decode: PricedEngine, prompt: int, output: int, space: Space
) -> Iterator[DeploymentPoint]:
    """Prefill and decode on engines of their own, in several ratios."""
    for batch in _BATCHES:
        state = decoding(decode, batch, prompt, output)
        if state is None:
            return
        tpot, tokens = state
        first_ms, prefills = prefilling(prefill, batch, prompt, space.cached)
        accepted, ranks = _accepted(decode.plan), decode.plan.dp
        for first, then in _RATIOS:
            gpus = first * prefill.plan.gpus + then * decode.plan.gpus
            if gpus <= space.most_gpus:
                prefilled = _SLACK * first * prefills * output * prefill.plan.dp
                served = min(tokens * accepted * ranks * then, prefilled)
                times = first_ms + tpot, tpot / accepted
                yield DeploymentPoint(decode, batch * ranks, then, first, *times, served, gpus, output, prefill)


def excess(point: DeploymentPoint, slo: Slo) -> float:
    """The estimated latency furthest beyond its limit, as a multiple of the limit; 0 without an SLO."""
    values = {"ttft": point.ttft_ms, "tpot": point.tpot_ms, "e2el": point.e2el_ms}
    return max((values[name] / bound for name, bound in slo.bounds.items()), default=0.0)


def pareto(points: Sequence[DeploymentPoint]) -> tuple[DeploymentPoint, ...]:
    """Points on the Pareto front of tokens/s per GPU and tokens/s per user."""
    best = -1.0
    front = []
    for point in sorted(points, key=lambda candidate: (-candidate.per_user, -candidate.per_gpu)):
        if point.per_gpu > best:
            front.append(point)
            best = point.per_gpu
    return tuple(front)
