"""The answer of `presim deploy`: the deployments that were simulated, the best of them, and how sure that is.

Fields that not every version of presim wrote have defaults. Figures have names as of ``vllm bench serve``.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.result.serving import ServedLoad
from presim.system.files.field_docs import doc

SCHEMA = "presim-deployments/2"


class DeployedEngines(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment is made of; null: not written."""

    deployment: Annotated[str, doc("The deployment in words.")]
    gpus: Annotated[int, doc("GPUs of all engines.")]
    gpu: Annotated[str | None, doc("GPU by catalogue id; of engines that decode where others prefill.")] = None
    engine: Annotated[str | None, doc("vllm, sglang or trtllm.")] = None
    engine_version: Annotated[str | None, doc("Version of the engine whose scheduling and prices these are.")] = None
    engines: Annotated[int | None, doc("Engines; where prefill is apart, those that decode.")] = None
    tp: Annotated[int | None, doc("Tensor-parallel degree of an engine.")] = None
    pp: Annotated[int | None, doc("Pipeline stages of an engine.")] = None
    dp: Annotated[int | None, doc("Data-parallel ranks of an engine, which share experts.")] = None
    weights: Annotated[str | None, doc("Type of most weights.")] = None
    kv: Annotated[str | None, doc("Type of the KV cache.")] = None
    max_num_batched_tokens: Annotated[int | None, doc("Most tokens of a step.")] = None
    prefill_engines: Annotated[int, doc("Engines that only prefill; 0: engines do both.")] = 0
    prefill_tp: Annotated[int | None, doc("Their tensor-parallel degree; null: there are none.")] = None
    prefill_gpu: Annotated[str | None, doc("Their GPU by catalogue id; null: there are none.")] = None


class EstimatedDeployment(DeployedEngines, frozen=True, kw_only=True):
    """A deployment with a batch that is always full, in closed form: without queues."""

    ttft_ms: Annotated[float, doc("Time to the first token, ms.")]
    tpot_ms: Annotated[float, doc("Time of a later token, ms.")]
    tokens_per_s_per_gpu: Annotated[float, doc("Output tokens/s of a GPU.")]
    tokens_per_s_per_user: Annotated[float, doc("Output tokens/s of one request.")]
    basis: Annotated[str, doc("How the figures came about.")] = "estimated"


class SimulatedDeployment(DeployedEngines, frozen=True, kw_only=True):
    """A deployment at its largest load within the SLO, or at a load that misses it; null: not simulated."""

    verdict: Annotated[str | None, doc("meets, misses, or fewer: it serves less than another of its kind.")] = None
    meets_slo: Annotated[bool, doc("Whether it meets the SLO at this load.")] = False
    reason: Annotated[str | None, doc("Why there are no figures; null: there are.")] = None
    request_rate: Annotated[float | None, doc("Requests/s that arrive.")] = None
    tokens_per_s_per_gpu: Annotated[float | None, doc("Output tokens/s of a GPU at this rate.")] = None
    tokens_per_s_per_user: Annotated[float | None, doc("Output tokens/s of one request, in the mean.")] = None
    ttft_ms: Annotated[float | None, doc("Mean time to the first token, ms.")] = None
    tpot_ms: Annotated[float | None, doc("Mean time of a later token, ms.")] = None
    figures: Annotated[dict[str, float], doc("Latencies in ms by statistic and metric, e.g. p99_ttft_ms.")] = {}
    output_throughput: Annotated[float | None, doc("Output tokens/s of all engines.")] = None
    in_flight: Annotated[float | None, doc("Requests in all engines, in the mean.")] = None
    requests: Annotated[int | None, doc("Requests that were judged: those in steady state.")] = None
    estimated_tokens_per_s_per_gpu: Annotated[float | None, doc("Output tokens/s of a GPU in closed form.")] = None
    basis: Annotated[str, doc("How the figures came about.")] = "simulated"


class DeploymentWithoutRoom(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that lacks least, where none holds the model and the longest request."""

    deployment: Annotated[str, doc("The plan in words.")]
    gpu: Annotated[str, doc("GPU by catalogue id.")]
    gpus: Annotated[int, doc("GPUs of the engine.")]
    needed_bytes: Annotated[int, doc("Bytes that each GPU needs.")]
    missing_bytes: Annotated[int, doc("Bytes of them that the engine may not use.")]


class DeploymentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a deployment beside its SLO; null: not asked. Money is in the currency of the prices."""

    request_rate: Annotated[float | None, doc("Requests/s to serve.")] = None
    total_gpus: Annotated[int | None, doc("Most GPUs.")] = None
    price_per_hour: Annotated[float | None, doc("Most money an hour.")] = None
    watts: Annotated[float | None, doc("Most power to provide, W.")] = None
    price_per_million_output_tokens: Annotated[float | None, doc("Most money for a million output tokens.")] = None
    price_per_gpu_hour: Annotated[dict[str, float], doc("Money for a GPU hour by GPU; of an empty name: others.")] = {}


class DeploymentCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What a deployment costs; null: no price was named, or the power is not known."""

    hour: Annotated[float | None, doc("Money an hour.")] = None
    million_output_tokens: Annotated[float | None, doc("Money for a million output tokens.")] = None
    watts: Annotated[float | None, doc("Power to provide, W: GPUs' limits, and their part of the nodes.")] = None


class LoadPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies at a rate."""

    request_rate: Annotated[float, doc("Requests/s that arrive.")]
    figures: Annotated[dict[str, float], doc("Latencies in ms by statistic and metric, e.g. p99_ttft_ms.")]


class PlanLoss(msgspec.Struct, frozen=True, kw_only=True):
    """What is lost where the best plan is changed."""

    plan: Annotated[str, doc("What is other than in the best plan.")]
    share: Annotated[float, doc("Share lost of the tokens/s of a GPU, for the money, or within the limits.")]


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """How sure the best is: further draws of its load, steps that take 10 % more or less time, and the next best."""

    units: Annotated[int, doc("How often the engines are repeated.")]
    spare_units: Annotated[int, doc("How many more of them a rate asks for, so that this many may fail.")]
    draws: Annotated[int, doc("Draws of the load.")]
    ranges: Annotated[dict[str, tuple[float | None, float | None]], doc("Lowest and highest figure of the draws.")]
    rate_range: Annotated[tuple[float, float], doc("Largest requests/s if steps take 10 % more, and 10 % less.")]
    queue_rate: Annotated[float, doc("Requests/s from which on queues grow without end.")]
    costs: Annotated[DeploymentCosts, doc("What it costs.")]
    load_curve: Annotated[list[LoadPoint], doc("Latencies at shares of the largest rate.")]
    losses: Annotated[list[PlanLoss], doc("What other plans lose, the least first.")]
    next_best: Annotated[SimulatedDeployment | None, doc("The next best; null: no other meets the SLO.")] = None
    next_rate_range: Annotated[tuple[float, float] | None, doc("Its largest requests/s, as above.")] = None
    next_costs: Annotated[DeploymentCosts | None, doc("What it costs.")] = None
    ranges_overlap: Annotated[bool, doc("Whether the next best may serve more, as steps are uncertain.")] = False


class DeployResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `presim deploy`."""

    schema: Annotated[str, doc("Name and version of this schema.")] = SCHEMA
    model: Annotated[str, doc("Name of the model.")] = ""
    workload: Annotated[ServedLoad | None, doc("The requests, which arrive at 1/s here; null: not written.")] = None
    slo: Annotated[dict[str, float], doc("Limits of latencies in ms, by metric.")]
    slo_statistics: Annotated[dict[str, str], doc("What meets each limit, e.g. p99 or mean.")] = {}
    limits: Annotated[DeploymentLimits, doc("What else is asked.")] = DeploymentLimits()
    judged: Annotated[int, doc("Deployments that were estimated in closed form.")]
    refused: Annotated[dict[str, int], doc("Number of plans that engines do not start, by reason.")]
    pareto: Annotated[list[EstimatedDeployment], doc("Estimated front of throughput and speed for a user.")]
    plans: Annotated[int | None, doc("Plans that could have been simulated; null: not written.")] = None
    unsimulated: Annotated[int, doc("Plans of them that may serve more by their estimates, but are one too many.")] = 0
    simulated: Annotated[list[SimulatedDeployment], doc("Plans that were simulated, best first.")]
    best: Annotated[SimulatedDeployment | None, doc("The answer; null: nothing meets the SLO and the limits.")]
    confirmation: Annotated[Confirmation | None, doc("How sure it is; null: there is none.")] = None
    nearest: Annotated[SimulatedDeployment | None, doc("The plan that misses the SLO by least; null: one meets it.")]
    without_room: Annotated[DeploymentWithoutRoom | None, doc("Where no plan holds the model: the nearest.")] = None
    would_help: Annotated[list[str], doc("What would meet the SLO, as sentences.")] = []
    shortfall: Annotated[str | None, doc("Why nothing serves what is asked, in a sentence.")] = None
    not_modelled: Annotated[list[str], doc("What the figures leave out, as sentences.")]
    partial: Annotated[bool, doc("Whether a signal ended it before all plans were judged.")] = False

    def __repr__(self) -> str:
        best = self.best
        if best is None or best.request_rate is None:
            return f"<DeployResult {self.model}: no deployment serves this>"
        return f"<DeployResult {self.model}: {best.deployment}, {best.request_rate:.4g} requests/s>"
