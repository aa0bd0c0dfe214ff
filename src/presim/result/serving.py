"""The answer of `presim serve`: a deployment, its memory, and what a load takes on it.

Fields that not every version of presim wrote have defaults. ``figures`` has the keys of ``vllm bench serve``.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from presim.system.files.field_docs import doc

SCHEMA = "presim-serving/1"
Figures: TypeAlias = dict[str, int | float | list[int | float] | None]


class EngineDefaults(msgspec.Struct, frozen=True):
    """What the engine's version chooses by itself."""

    engine: Annotated[str, doc("The engine whose defaults these are.")]
    version: Annotated[str, doc("Its version.")]
    text: Annotated[str | None, doc("The defaults in words; null: the plan says all.")]
    fields: Annotated[dict[str, Any], doc("Values by field of the plan.")]


class ServedDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """Engines behind a router."""

    model: Annotated[str, doc("Name of the model.")]
    gpu: Annotated[str, doc("GPU by catalogue id.")]
    plan: Annotated[str, doc("Parallelism, types and cache of an engine, in words.")]
    gpus: Annotated[int, doc("GPUs of all engines.")]
    replicas: Annotated[int, doc("Engines; with a life cycle the most at once.")]
    prefill_replicas: Annotated[int, doc("Further engines that only prefill.")]
    router: Annotated[str, doc("How requests are spread over engines.")]
    engine_defaults: Annotated[EngineDefaults, doc("What the engine chooses by itself.")]
    prefill_gpu: Annotated[str | None, doc("GPU of engines that only prefill; null: there are none.")] = None
    weights: Annotated[str, doc("Types of the weights, with what says so.")] = ""
    parameters: Annotated[int | None, doc("Parameters of the model; null: not written.")] = None
    described_by: Annotated[str, doc("What described the model's layers.")] = ""
    layers: Annotated[str, doc("Layers by kind, in words.")] = ""
    kv_bytes_per_token: Annotated[int | float, doc("Bytes of keys and values of a token.")] = 0.0
    state_bytes_per_sequence: Annotated[int | float, doc("Bytes of states of a sequence.")] = 0.0
    life: Annotated[dict[str, Any] | None, doc("How engines start, stop and fail; null: they run throughout.")] = None
    limits: Annotated[dict[str, Any], doc("Limits of the scheduler, with vLLM's names.")] = {}


class KvGroup(msgspec.Struct, frozen=True):
    """Layers that share pages of the KV cache."""

    kind: Annotated[str, doc("Kind of the layers.")]
    layers: Annotated[int, doc("Number of layers.")]
    page_tokens: Annotated[int, doc("Tokens of a page.")]
    window: Annotated[int | None, doc("Tokens of the sliding window; null: all.")]


class EngineMemory(msgspec.Struct, frozen=True):
    """Memory of the fullest GPU."""

    weights_GiB: Annotated[float, doc("Weights.")]
    activations_GiB: Annotated[float, doc("Peak of activations.")]
    others_GiB: Annotated[float, doc("Communicators, graphs, and the driver where the engine counts it.")]
    kv_cache_GiB: Annotated[float, doc("The KV cache.")]
    allowed_GiB: Annotated[float, doc("What the engine may use.")]
    kv_cache_tokens: Annotated[int, doc("Tokens of a request that the cache holds.")]
    kv_cache_pages: Annotated[int, doc("Pages of the cache.")]
    kv_page_tokens: Annotated[int, doc("Tokens of a page.")]
    kv_page_bytes: Annotated[int, doc("Bytes of a page.")]
    kv_groups: Annotated[list[KvGroup], doc("Groups of layers that share pages.")]


class ServedLoad(msgspec.Struct, frozen=True):
    """The requests."""

    name: Annotated[str, doc("The load in words.")]
    origin: Annotated[str, doc("What made it, or the file it was read from.")]
    seed: Annotated[int | None, doc("Seed of what was drawn.")]
    requests: Annotated[int, doc("Number of requests.")]
    span_s: Annotated[float, doc("Seconds from the first arrival to the last.")]
    request_rate: Annotated[float | None, doc("Arrivals per second; null: they do not come by a clock.")]
    concurrency: Annotated[int | None, doc("Most requests in flight; null: no limit.")]
    prompt_tokens: Annotated[dict[str, int | float], doc("Mean, median, p99 and maximum of prompts.")]
    output_tokens: Annotated[dict[str, int | float], doc("The same of outputs.")]
    total_prompt_tokens: Annotated[int, doc("Tokens of all prompts.")]
    total_output_tokens: Annotated[int, doc("Tokens of all outputs.")]
    adapters: Annotated[int, doc("LoRA adapters.")]
    structured_requests: Annotated[int, doc("Requests with a grammar.")]
    follow_up_requests: Annotated[int, doc("Later turns of conversations.")]
    tokens_shared_at_most: Annotated[int, doc("Prompt tokens that other prompts have, too.")]
    skipped_rows: Annotated[int, doc("Rows of the trace that are no requests.")]


class CacheTiers(msgspec.Struct, frozen=True):
    """Where prompt tokens were found, with tiers of the KV cache."""

    gpu_hit_tokens: Annotated[int, doc("Tokens found on the GPU.")]
    host_hit_tokens: Annotated[int, doc("Tokens found in host memory.")]
    disk_hit_tokens: Annotated[int, doc("Tokens found on disk.")]
    gpu_hit_rate: Annotated[float, doc("Share of prompt tokens found on the GPU.")]
    host_hit_rate: Annotated[float, doc("The same in host memory.")]
    disk_hit_rate: Annotated[float, doc("The same on disk.")]
    blocks_given_up_by_gpus: Annotated[int, doc("Blocks that left GPUs.")]
    blocks_lost: Annotated[int, doc("Blocks that left the last tier.")]
    shared_hit_tokens: Annotated[int, doc("Tokens found in the pool that engines share.")] = 0
    shared_hit_rate: Annotated[float, doc("Share of prompt tokens found there.")] = 0.0
    blocks_stored: Annotated[int, doc("Blocks written to that pool.")] = 0


class EngineFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Inside the engines; figures are missing where no step ran."""

    steps: Annotated[int, doc("Steps of all engines.")]
    device_busy: Annotated[float | None, doc("Share of the time in which the device works.")] = None
    time_in_steps_with_prefill: Annotated[float | None, doc("Share of device time in steps with prompts.")] = None
    mean_batch: Annotated[float | None, doc("Requests of a step, weighted by time.")] = None
    max_batch: Annotated[int | None, doc("Most requests of a step.")] = None
    mean_kv_use: Annotated[float | None, doc("Share of the cache in use, weighted by time.")] = None
    max_kv_use: Annotated[float | None, doc("Largest share of the cache in use.")] = None
    max_waiting: Annotated[int | None, doc("Most requests waiting.")] = None
    preemptions: Annotated[int | None, doc("Requests that lost their blocks.")] = None
    prefix_cache_hit_rate: Annotated[float | None, doc("Share of prompt tokens found in the cache.")] = None
    tiers: Annotated[CacheTiers | None, doc("Where they were found; missing without tiers.")] = None


class EnginesOverTime(msgspec.Struct, frozen=True):
    """Number of engines by state."""

    columns: Annotated[list[str], doc("Names of the columns.")]
    rows: Annotated[list[list[int | float]], doc("A row for each change, with its time in s.")]


class FleetFigures(msgspec.Struct, frozen=True):
    """Engines that start, stop and fail."""

    mean_engines: Annotated[float, doc("Mean number of engines.")]
    mean_engines_serving: Annotated[float, doc("Mean number of those that serve.")]
    most_engines: Annotated[int, doc("Most engines at once.")]
    mean_gpus: Annotated[float, doc("Mean number of GPUs.")]
    gpu_hours: Annotated[float, doc("GPU hours of the load.")]
    failures: Annotated[int, doc("Failures.")]
    engine_starts: Annotated[int, doc("Engines that started.")]
    engine_drains: Annotated[int, doc("Engines that were drained.")]
    requests_requeued: Annotated[int, doc("Requests that another engine took over.")]
    requests_lost: Annotated[int, doc("Requests that were lost.")]
    tokens_computed_again: Annotated[int, doc("Tokens computed a second time.")]
    engines_over_time: Annotated[EnginesOverTime, doc("Number of engines by state over time.")]


class LoadOverTime(msgspec.Struct, frozen=True):
    """All engines at evenly spaced moments of the run; idle engines count as empty."""

    time_s: Annotated[list[float], doc("Moments, s since the start of the load.")]
    running: Annotated[list[int], doc("Requests in the batches of all engines.")]
    waiting: Annotated[list[int], doc("Requests that wait in the engines' queues.")]
    kv_use: Annotated[list[float], doc("Share of the KV cache of all engines that is in use.")]
    step_ms: Annotated[list[float | None], doc("Mean time of the engines' steps, ms; null: no engine has one.")]


class RequestTimes(msgspec.Struct, frozen=True):
    """Times of requests in the order of their arrival, s since the start of the load; null: it did not happen."""

    of: Annotated[int, doc("Requests of the load; with many, every n-th is listed.")]
    sent_s: Annotated[list[float | None], doc("The client sent it.")]
    scheduled_s: Annotated[list[float | None], doc("Its first step was scheduled.")]
    first_token_s: Annotated[list[float | None], doc("The client received its first token.")]
    last_token_s: Annotated[list[float | None], doc("The client received its last token.")]


class Cost(msgspec.Struct, frozen=True):
    """Energy and money; null: not known, or no price was named."""

    watts: Annotated[float | None, doc("Mean power of all GPUs and their nodes, W.")]
    kWh_per_million_output_tokens: Annotated[float | None, doc("Energy of a million output tokens.")]
    kWh_per_million_output_tokens_range: Annotated[list[float | None], doc("Both ends of its range.")]
    kWh_per_million_tokens: Annotated[float | None, doc("Energy of a million tokens, in and out.")]
    gpu_hours_per_million_output_tokens: Annotated[float | None, doc("GPU hours of a million output tokens.")]
    money_per_million_output_tokens: Annotated[float | None, doc("Price of these GPU hours.")]
    energy_money_per_million_output_tokens: Annotated[float | None, doc("Price of the energy.")]
    price_per_gpu_hour: Annotated[float | None, doc("Price of a GPU hour.")]
    price_per_kwh: Annotated[float | None, doc("Price of a kWh.")]


class StepOperator(msgspec.Struct, frozen=True):
    """Calls of one operator in a step."""

    name: Annotated[str, doc("The operator with its sizes.")]
    calls: Annotated[int, doc("Number of calls.")]
    us: Annotated[float, doc("Device time of all calls, us.")]
    share: Annotated[float, doc("Share of the step.")]
    limit: Annotated[str, doc("What limits it.")]
    light: Annotated[float, doc("Share of the limit that it reaches.")]
    origin: Annotated[str, doc("Where its price comes from.")]


class StepDetail(msgspec.Struct, frozen=True):
    """A step by operator, the longest first."""

    sequences: Annotated[int, doc("Requests of the step.")]
    tokens: Annotated[int, doc("Tokens that it computes.")]
    context: Annotated[int, doc("Keys of each request.")]
    operators: Annotated[list[StepOperator], doc("Its operators.")]
    device_us: Annotated[float, doc("Device time, us.")]
    launch_us: Annotated[float, doc("Time of the host to launch it, us.")]
    simulated_us: Annotated[float, doc("What the simulation takes for such a step, us.")]
    limit: Annotated[str, doc("What the step waits for.")]


class ServingResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `presim serve`."""

    schema: Annotated[str, doc("Name and version of this schema.")] = SCHEMA
    deployment: Annotated[ServedDeployment, doc("What serves.")]
    memory: Annotated[EngineMemory, doc("Memory of the fullest GPU.")]
    workload: Annotated[ServedLoad, doc("What is served.")]
    figures: Annotated[Figures, doc("Latencies and throughput, with the keys of ``vllm bench serve``.")]
    intervals_80: Annotated[dict[str, tuple[int | float, int | float]], doc("80 % intervals by figure.")]
    per_gpu_output_throughput: Annotated[float, doc("Output tokens/s of a GPU.")]
    fleet: Annotated[FleetFigures | None, doc("Engines that start, stop and fail; null: they run throughout.")]
    cost: Annotated[Cost, doc("Energy and money.")]
    engine: Annotated[EngineFigures, doc("Inside the engines.")]
    slo: Annotated[dict[str, float], doc("Limits of latencies in ms, by metric.")]
    slo_percentile: Annotated[float, doc("Percentile that must meet limits that name no other.")]
    slo_statistics: Annotated[dict[str, str], doc("What meets each limit, e.g. p99 or mean.")] = {}
    sustainable_request_rate: Annotated[float | None, doc("Largest requests/s without an ever longer queue.")]
    largest_request_rate_within_slo: Annotated[float | None, doc("Largest requests/s within the SLO; null: not known.")]
    overloaded: Annotated[bool, doc("Whether more requests arrive than are sustainable.")]
    prices: Annotated[dict[str, float], doc("Share of a decoding step by origin of its price.")]
    steps: Annotated[dict[str, str | int | float] | None, doc("Captured steps and their errors; null: composed.")]
    step_detail: Annotated[dict[str, StepDetail] | None, doc("With --detail: two steps by operator.")] = None
    overheads: Annotated[dict[str, Any], doc("Time of the host outside of the device's steps, us, and its origin.")]
    notes: Annotated[list[str], doc("What a reader should know, as sentences.")]
    not_modelled: Annotated[list[str], doc("What the figures leave out, as sentences.")]
    over_time: Annotated[LoadOverTime | None, doc("Batch, queue and KV cache over the run; null: no step ran.")] = None
    request_times: Annotated[RequestTimes | None, doc("When requests were sent, scheduled and answered.")] = None

    def __repr__(self) -> str:
        deployment = self.deployment
        named = (
            ("TTFT", "mean_ttft_ms", " ms"),
            ("TPOT", "mean_tpot_ms", " ms"),
            ("", "output_throughput", " tokens/s"),
        )
        figures = [
            f"{name} {self.figures[key]:.4g}{unit}".strip() for name, key, unit in named if self.figures.get(key)
        ]
        served = ", ".join(figures) or "no request was served"
        return (
            f"<ServingResult {deployment.model} on {deployment.gpus} x {deployment.gpu}, {deployment.plan}: {served}>"
        )

    @property
    def slo_statistic_by_metric(self) -> dict[str, str]:
        """What meets each limit; earlier versions had one percentile for all of them."""
        return dict(self.slo_statistics or dict.fromkeys(self.slo, f"p{self.slo_percentile:g}"))
