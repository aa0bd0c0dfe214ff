"""Search deployments of a model: plans, batch limits, and the split of prefill and decode, under an SLO.

Each engine is priced once. A deployment's steady state follows from its step times in closed form (`steady`), which
takes microseconds. The best deployments are then simulated request by request with the scheduler's real decisions.
Results that were not simulated are marked.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from presim.cost.estimators import check, notes
from presim.errors import InputError, PresimError, reason_of
from presim.hardware import catalogue
from presim.hardware.choose import choose_cluster
from presim.interrupts import caught
from presim.models.description import Model
from presim.serving.answer import metrics
from presim.serving.answer.metrics import Slo
from presim.serving.deployments.deployment import Deployment, predict
from presim.serving.kept import model_token_bytes
from presim.serving.plan import Plan, Scheduler, Weights
from presim.serving.steps.times import Engine, build
from presim.serving.weight_types import typed
from presim.serving.workloads.generate import Recipe, generate

_BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 768, 1024)

_RANKS = "Data-parallel ranks that share experts are not searched; `presim serve --dp N --ep` simulates a given number."


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
    prices: tuple[Path, ...] = ()  # folders with the user's own tables and models


@dataclasses.dataclass(frozen=True)
class Point:
    """One deployment and its steady state at one load."""

    engine: Engine = dataclasses.field(repr=False, compare=False)
    batch: int  # requests in flight per engine
    replicas: int
    prefill_replicas: int  # 0: engines do both prefill and decode
    ttft_ms: float
    tpot_ms: float
    tokens_per_s: float  # all replicas together
    gpus: int

    @property
    def per_gpu(self) -> float:
        """Output tokens/s per GPU."""
        return self.tokens_per_s / self.gpus

    @property
    def per_user(self) -> float:
        """Output tokens/s of one request."""
        return 1e3 / self.tpot_ms

    @property
    def text(self) -> str:
        """Short description of the deployment."""
        plan, cluster = self.engine.plan, self.engine.cluster
        count = f"{self.replicas} x " if not self.prefill_replicas else f"{self.prefill_replicas}P{self.replicas}D x "
        engine = "SGLang, " if plan.decides == "sglang" else ""
        return (
            f"{count}{cluster.gpu.id} {engine}{plan.text}, {self.batch} in flight, {plan.max_num_batched_tokens} "
            "tokens a step"
        )


@dataclasses.dataclass(frozen=True)
class Found:
    """Result of a search."""

    points: tuple[Point, ...]
    refused: dict[str, int]  # number of invalid plans by reason
    pareto: tuple[Point, ...]  # Pareto front of the points within the SLO
    nearest: Point | None  # set if no point meets the SLO
    not_modelled: tuple[str, ...]  # in sentences
    partial: bool = False  # a signal ended it before all plans were evaluated

    @property
    def best(self) -> Point | None:
        """The point with most tokens/s per GPU within the SLO."""
        return max(self.pareto, key=lambda point: point.per_gpu, default=None)


def engines(model: Model, space: Space, longest: int) -> Iterator[Engine | str]:
    """Each plan of the space as an engine, or the reason why it is invalid."""
    for name, gpu, tp, pp, weights, budget in itertools.product(
        space.engines, space.gpus, space.tps, space.pps, space.weights, space.budgets
    ):
        if tp * pp > space.most_gpus:
            continue
        if name == "sglang" and pp > 1:
            yield "SGLang's pipeline stages are not modelled"
            continue
        if weights == "fp8" and catalogue.gpu(gpu).peak("fp8") is None:
            yield f"{gpu} does not support FP8"
            continue
        if None in space.weights and weights and (weights == model.checkpoint.weights or model.checkpoint.method):
            continue  # the checkpoint's own, or one that engines do not quantise again
        plan = Plan(
            tp=tp,
            pp=pp,
            max_num_batched_tokens=budget,
            max_num_seqs=1024,
            max_model_len=min(longest, model.longest),
            kernels=name,
        )
        try:
            plan = typed(plan, model, weights, None)
            yield build(model, plan, choose_cluster(gpu=gpu, world_size=plan.gpus), prices=space.prices)
        except PresimError as error:
            yield str(error).split(":")[0]
        except Exception as error:  # noqa: BLE001  a bug in one plan must not lose the others
            yield f"{plan.text}: {reason_of(error)}"


def steady(engine: Engine, batch: int, prompt: int, output: int) -> tuple[float, float, float] | None:
    """(TTFT ms, TPOT ms, tokens/s) of an engine that always has ``batch`` requests in flight; None if they do not fit.

    While a request decodes for ``output`` steps, the other requests of the batch prefill: vLLM's steps then also carry
    the tokens of ``batch`` prompts, SGLang's steps with prompts no decodes. A step takes the longer of host and device
    time, as with asynchronous scheduling.
    """
    times, limits = engine.times, engine.limits
    if not limits.holds(batch, prompt + output) or batch > limits.max_num_seqs:
        return None
    stages = limits.pipeline_parallel_size
    share = -(-batch // stages)  # requests per batch in flight: a pipeline has one batch per stage
    host = times.host_ns + times.back_ns + (times.host_seq_ns + times.back_seq_ns) * share
    context = prompt + output // 2
    decode = max(times.step_ns([], [context] * share), host + times.launch_ns(share, prompts=False))
    chunk = min(prompt, max(limits.max_num_batched_tokens - share, 1))
    pieces = -(-prompt // chunk)
    keys = [min((place + 1) * chunk, prompt) for place in range(pieces)]
    # Prefill of one prompt, in vLLM's steps that also decode the other requests.
    beside = 0 if limits.scheduler == "sglang" else share - 1
    launched = host + times.launch_ns(chunk + beside, prompts=True)
    mixed = [max(times.step_ns([(chunk, key)], [context] * beside), launched) for key in keys]
    prefill = sum(mixed)
    extra = batch * max(prefill - pieces * decode, 0.0)
    if limits.scheduler == "sglang":
        extra = (batch - 1) * (prefill if pieces > 1 else _together_ns(engine, prompt, batch / output, host))
    # duration of one request: its decoding plus the prefills of others
    whole = output * decode * stages + extra
    over = engine.overheads
    front = (
        over.input_us + prompt * over.input_token_us + batch * over.input_load_us + over.output_us
    ) * 1e3  # between a request's end and the next one's start
    ttft = (prefill * stages + 0.5 * decode + front) / 1e6
    tpot = whole / output / 1e6
    return ttft, tpot, batch * output / (whole + prefill + front) * 1e9


def _together_ns(engine: Engine, prompt: int, ends: float, host: float) -> float:
    """Time of a prompt in SGLang's steps of prompts alone, of which each has those that came during one decoding step.

    ``ends``: requests that end in a decoding step, in the mean. If they are Poisson distributed, a step of prompts has
    ends / (1 - exp(-ends)) of them.
    """
    times, limits = engine.times, engine.limits
    most = max(min(limits.max_num_batched_tokens // prompt, limits.max_num_seqs) - 1, 1)
    count = min(-ends / math.expm1(-ends), most)
    whole = int(count)

    def step_ns(prompts: int) -> float:
        tokens = min(prompts * prompt, limits.max_num_batched_tokens)
        launched = host + times.launch_ns(tokens, prompts=True)
        return max(times.step_ns([(tokens // prompts, prompt)] * prompts, []), launched)

    return (step_ns(whole) * (whole + 1 - count) + step_ns(whole + 1) * (count - whole)) / count


def disaggregated(engine: Engine, batch: int, prompt: int, output: int) -> tuple[float, float, float, float] | None:
    """(TTFT ms, TPOT ms, tokens/s of a decode engine, requests/s of a prefill engine)."""
    times, limits = engine.times, engine.limits
    if not limits.holds(batch, prompt + output) or batch > limits.max_num_seqs:
        return None
    stages = limits.pipeline_parallel_size
    share = -(-batch // stages)
    host = times.host_ns + times.back_ns + (times.host_seq_ns + times.back_seq_ns) * share
    launched = host + times.launch_ns(share, prompts=False)
    decode = max(times.step_ns([], [prompt + output // 2] * share), launched) * stages
    chunk = min(prompt, limits.max_num_batched_tokens)
    pieces = -(-prompt // chunk)
    prefill = sum(times.step_ns([(chunk, min((place + 1) * chunk, prompt))], []) for place in range(pieces))
    model, cluster = engine.model, engine.cluster
    moved = prompt * model_token_bytes(model, engine.plan.cache, cluster.gpu.architecture)
    transfer = moved / (cluster.network_bytes_per_s * engine.plan.tp) * 1e9
    over = engine.overheads
    ttft = (prefill * stages + transfer + decode) / 1e6 + (
        over.input_us + prompt * over.input_token_us + batch * over.input_load_us + over.output_us
    ) / 1e3
    return ttft, decode / 1e6, batch / (decode / 1e9), 1e9 / max(prefill, transfer)


def search(model: Model, space: Space, prompt: int, output: int, slo: Slo) -> Found:
    """Evaluate all deployments of the space and select the best."""
    limits = _not_modelled(model, space)
    points: list[Point] = []
    refused: dict[str, int] = {}
    with caught() as stop:
        for engine in engines(model, space, prompt + output + 16):
            evaluated = engine if isinstance(engine, str) else _points(engine, prompt, output, space)
            if isinstance(evaluated, str):
                refused[evaluated] = refused.get(evaluated, 0) + 1
            else:
                points += evaluated
    stop.unless(points)
    if not points:
        why = "; ".join(f"{count} x {reason}" for reason, count in sorted(refused.items(), key=lambda it: -it[1])[:3])
        raise InputError(f"no plan can serve {prompt} + {output} tokens ({why}); allow more GPUs or smaller weights")
    within = [point for point in points if _keeps(point, slo)]
    nearest = None if within else min(points, key=lambda point: (_excess(point, slo), -point.per_gpu))
    return Found(tuple(points), refused, pareto(within), nearest, limits, stop.is_partial)


def _points(engine: Engine, prompt: int, output: int, space: Space) -> list[Point] | str:
    """The deployments of an engine, or a fault of presim's in a sentence, which keeps the other engines."""
    try:
        return [point for batch in _BATCHES for point in _of(engine, batch, prompt, output, space)]
    except Exception as error:  # noqa: BLE001
        return f"{engine.plan.text}: {reason_of(error)}"


def _not_modelled(model: Model, space: Space) -> tuple[str, ...]:
    """What the search leaves out, and rows of the user's prices that it cannot use."""
    check(space.prices)
    limits = [_RANKS] if model.experts else []
    limits += [note for gpu in space.gpus for note in notes(catalogue.gpu(gpu), space.prices)]
    return tuple(dict.fromkeys(limits))


def _of(engine: Engine, batch: int, prompt: int, output: int, space: Space) -> list[Point]:
    found = []
    if (state := steady(engine, batch, prompt, output)) is not None:
        found.append(Point(engine, batch, 1, 0, *state, engine.plan.gpus))
    if not space.disaggregated or (split := disaggregated(engine, batch, prompt, output)) is None:
        return found
    ttft, tpot, tokens, prefills = split
    for first, then in itertools.product((1, 2, 3, 4), (1, 2, 3, 4)):
        gpus = (first + then) * engine.plan.gpus
        if gpus <= space.most_gpus:
            served = min(tokens * then, 0.9 * first * prefills * output)  # a queue needs some slack
            found.append(Point(engine, batch, then, first, ttft, tpot, served, gpus))
    return found


def _values(point: Point, slo: Slo) -> list[tuple[float, float]]:
    values = {"ttft": point.ttft_ms, "tpot": point.tpot_ms}
    return [(values[name], bound) for name, bound in slo.bounds.items() if name in values]


def _keeps(point: Point, slo: Slo) -> bool:
    return all(value <= bound for value, bound in _values(point, slo))


def _excess(point: Point, slo: Slo) -> float:
    return max((value / bound for value, bound in _values(point, slo)), default=0.0)


def pareto(points: Sequence[Point]) -> tuple[Point, ...]:
    """Points on the Pareto front of tokens/s per GPU and tokens/s per user."""
    best = -1.0
    kept = []
    for point in sorted(points, key=lambda one: (-one.per_user, -one.per_gpu)):
        if point.per_gpu > best:
            kept.append(point)
            best = point.per_gpu
    return tuple(kept)


def confirm(point: Point, recipe: Recipe, slo: Slo) -> dict[str, Any]:
    """Simulate the same deployment request by request, with equally many requests in flight."""
    engine = point.engine
    deployment = Deployment(engine, point.replicas, "least-loaded")
    if point.prefill_replicas:
        deployment = dataclasses.replace(deployment, prefill=engine, prefill_replicas=point.prefill_replicas)
    flying = point.batch * point.replicas
    load = generate(dataclasses.replace(recipe, requests=min(6 * flying, 3000), concurrency=flying, rate=None))
    prediction = predict(deployment, load, slo, find_knee=False)
    figures = prediction.figures
    return {
        "deployment": point.text,
        "mean_ttft_ms": figures["mean_ttft_ms"],
        "p99_ttft_ms": figures["p99_ttft_ms"],
        "mean_tpot_ms": figures["mean_tpot_ms"],
        "output_throughput": figures["output_throughput"],
        "meets_slo": metrics.meets(prediction.served, slo),
    }


def confirm_all(points: Sequence[Point], recipe: Recipe, slo: Slo) -> tuple[list[dict[str, Any]], bool]:
    """`confirm` of each point, with the reason where it fails, and whether a signal ended it before the last."""
    entries: list[dict[str, Any]] = []
    with caught() as stop:
        for point in points:
            try:
                entries.append(confirm(point, recipe, slo))
            except Exception as error:  # noqa: BLE001  one deployment must not lose the others
                entries.append({"deployment": point.text, "reason": reason_of(error)})
    return entries, stop.is_partial
