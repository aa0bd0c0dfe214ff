"""Searches deployments of a model: which plan, batch limits and split of prefill and decode give what, under an SLO.

Each engine is priced once; a deployment's steady state follows from its steps in closed form (`steady`), which takes
microseconds. The best ones are then simulated request by request, with the scheduler's real decisions. What was not
simulated says so.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from presim.errors import InputError, PresimError
from presim.hardware import catalogue
from presim.hardware.choose import choose_cluster
from presim.serving.answer import metrics
from presim.serving.answer.metrics import Slo
from presim.serving.deployments.deployment import Deployment, predict
from presim.serving.model import Model
from presim.serving.plan import Plan, Weights
from presim.serving.steps.times import Engine, build
from presim.serving.workloads.generate import Recipe, generate

_BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 768, 1024)


@dataclasses.dataclass(frozen=True)
class Space:
    """What is tried."""

    gpus: tuple[str, ...]
    tps: tuple[int, ...] = (1, 2, 4, 8)
    pps: tuple[int, ...] = (1, 2)
    weights: tuple[Weights, ...] = ("bf16", "fp8")
    budgets: tuple[int, ...] = (2048, 8192, 16384)  # max_num_batched_tokens
    most_gpus: int = 16
    disaggregated: bool = True


@dataclasses.dataclass(frozen=True)
class Point:
    """One deployment and its steady state at one load."""

    engine: Engine = dataclasses.field(repr=False, compare=False)
    batch: int  # requests in flight of each engine
    replicas: int
    prefill_replicas: int  # 0: each engine does both
    ttft_ms: float
    tpot_ms: float
    tokens_per_s: float  # of all replicas
    gpus: int

    @property
    def per_gpu(self) -> float:
        """Output tokens a second and GPU."""
        return self.tokens_per_s / self.gpus

    @property
    def per_user(self) -> float:
        """Output tokens a second that one request sees."""
        return 1e3 / self.tpot_ms

    @property
    def text(self) -> str:
        """The deployment in a few words."""
        plan, cluster = self.engine.plan, self.engine.cluster
        count = f"{self.replicas} x " if not self.prefill_replicas else f"{self.prefill_replicas}P{self.replicas}D x "
        return (
            f"{count}{cluster.gpu.id} {plan.text}, {self.batch} in flight, {plan.max_num_batched_tokens} tokens a step"
        )


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search found."""

    points: tuple[Point, ...]
    refused: dict[str, int]  # plans that cannot be, by reason
    pareto: tuple[Point, ...]  # of those within the SLO: none has more of both
    nearest: Point | None  # where none is within it

    @property
    def best(self) -> Point | None:
        """Most tokens a second and GPU within the SLO."""
        return max(self.pareto, key=lambda point: point.per_gpu, default=None)


def engines(model: Model, space: Space, longest: int) -> Iterator[Engine | str]:
    """Each plan of the space as an engine, or why it cannot be."""
    for gpu, tp, pp, weights, budget in itertools.product(
        space.gpus, space.tps, space.pps, space.weights, space.budgets
    ):
        if tp * pp > space.most_gpus:
            continue
        if weights == "fp8" and catalogue.gpu(gpu).peak("fp8") is None:
            yield f"{gpu} has no FP8"
            continue
        plan = Plan(
            tp=tp, pp=pp, weights=weights, max_num_batched_tokens=budget, max_num_seqs=1024, max_model_len=longest
        )
        try:
            yield build(model, plan, choose_cluster(gpu=gpu, world_size=plan.gpus))
        except PresimError as error:
            yield str(error).split(":")[0]


def steady(engine: Engine, batch: int, prompt: int, output: int) -> tuple[float, float, float] | None:
    """TTFT and TPOT in ms, and tokens a second, of an engine with so many requests always in flight; None: no room.

    While a request decodes, others of the batch prefill: of ``output`` steps, so many carry the tokens of
    ``batch`` prompts. A step costs the longer of host and device, as with asynchronous scheduling.
    """
    times, limits = engine.times, engine.limits
    if batch * (prompt + output) > limits.kv_tokens or batch > limits.max_num_seqs:
        return None
    stages = limits.pipeline_parallel_size
    share = -(-batch // stages)  # of each batch in flight: a pipeline has one for each stage
    host = times.host_ns + times.back_ns + (times.host_seq_ns + times.back_seq_ns) * share
    context = prompt + output // 2
    decode = max(times.step_ns([], [context] * share), host)
    chunk = min(prompt, max(limits.max_num_batched_tokens - share, 1))
    pieces = -(-prompt // chunk)
    keys = [min((place + 1) * chunk, prompt) for place in range(pieces)]
    # One prompt's prefill, in steps that decode the others.
    mixed = [max(times.step_ns([(chunk, key)], [context] * (share - 1)), host) for key in keys]
    prefill = sum(mixed)
    extra = max(prefill - pieces * decode, 0.0)
    whole = output * decode * stages + batch * extra  # of one request's life: its decoding, and the others' prefills
    over = engine.overheads
    ttft = (prefill * stages + 0.5 * decode) / 1e6 + (over.input_us + over.output_us) / 1e3
    tpot = whole / output / 1e6
    return ttft, tpot, batch * output / (whole / 1e9 + prefill / 1e9)


def disaggregated(engine: Engine, batch: int, prompt: int, output: int) -> tuple[float, float, float, float] | None:
    """TTFT, TPOT, tokens a second of a decoding engine, and requests a second of a prefilling one."""
    times, limits = engine.times, engine.limits
    if batch * (prompt + output) > limits.kv_tokens or batch > limits.max_num_seqs:
        return None
    stages = limits.pipeline_parallel_size
    share = -(-batch // stages)
    host = times.host_ns + times.back_ns + (times.host_seq_ns + times.back_seq_ns) * share
    decode = max(times.step_ns([], [prompt + output // 2] * share), host) * stages
    chunk = min(prompt, limits.max_num_batched_tokens)
    pieces = -(-prompt // chunk)
    prefill = sum(times.step_ns([(chunk, min((place + 1) * chunk, prompt))], []) for place in range(pieces))
    model, cluster = engine.model, engine.cluster
    moved = prompt * model.layers * model.kv_elements * (1 if engine.plan.cache == "fp8" else 2)
    transfer = moved / (cluster.network_bytes_per_s * engine.plan.tp) * 1e9
    over = engine.overheads
    ttft = (prefill * stages + transfer + decode) / 1e6 + (over.input_us + over.output_us) / 1e3
    return ttft, decode / 1e6, batch / (decode / 1e9), 1e9 / max(prefill, transfer)


def search(model: Model, space: Space, prompt: int, output: int, slo: Slo) -> Found:
    """All deployments of the space, and the best of them."""
    points: list[Point] = []
    refused: dict[str, int] = {}
    for engine in engines(model, space, prompt + output + 16):
        if isinstance(engine, str):
            refused[engine] = refused.get(engine, 0) + 1
            continue
        for batch in _BATCHES:
            points += _of(engine, batch, prompt, output, space)
    if not points:
        why = "; ".join(f"{count} x {reason}" for reason, count in sorted(refused.items(), key=lambda it: -it[1])[:3])
        raise InputError(f"no plan serves {prompt} + {output} tokens ({why}); allow more GPUs or smaller weights")
    within = [point for point in points if _keeps(point, slo)]
    nearest = None if within else min(points, key=lambda point: (_excess(point, slo), -point.per_gpu))
    return Found(tuple(points), refused, pareto(within), nearest)


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
    """Those of which none else has more tokens a second both per GPU and per user."""
    best = -1.0
    kept = []
    for point in sorted(points, key=lambda one: (-one.per_user, -one.per_gpu)):
        if point.per_gpu > best:
            kept.append(point)
            best = point.per_gpu
    return tuple(kept)


def confirm(point: Point, recipe: Recipe, slo: Slo) -> dict[str, Any]:
    """The same deployment, simulated request by request with as many in flight."""
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


def spread(found: Found, count: int = 5) -> list[Point]:
    """A few points along the Pareto front, the ends among them."""
    if not found.pareto:
        return []
    places = np.unique(np.linspace(0, len(found.pareto) - 1, count).round().astype(int))
    return [found.pareto[place] for place in places]
