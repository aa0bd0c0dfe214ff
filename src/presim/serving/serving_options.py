"""The options of ``presim serve``, a value for each of its groups; the command line declares them with these names."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from presim.serving.engines.engine import Router
from presim.serving.serving_plan import Cache, Kernels, Scheduler, Weights
from presim.serving.workloads.generate import Arrivals


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """One engine; what is None follows from the model, the GPU and the engine's version."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    ep: bool = False
    weights: Weights | None = None  # None: the checkpoint's own
    expert_weights: Weights | None = None  # None: as `weights`, or the checkpoint's own
    cache: Cache | None = None  # None: the checkpoint's, else bf16
    kernels: Kernels = "vllm"
    fp8_products: Literal["deepgemm", "flashinfer"] | None = None
    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    block_size: int = 16
    engine_version: str | None = None
    scheduler: Scheduler | None = None
    max_prefill_tokens: int = 16384
    scheduler_recv_interval: int = 1
    prefill_schedule_interval: int = 1
    num_gpu_blocks: int | None = None
    graph_tokens: int | None = None
    policy: Literal["fcfs", "priority"] = "fcfs"
    async_scheduling: bool = True
    prefix_caching: bool = True
    speculative: Literal["mtp", "eagle", "draft", "ngram"] | None = None
    draft_tokens: int = 1
    acceptance: float | None = None  # None: usual for the method
    draft_model: str | None = None
    max_loras: int = 0
    lora_rank: int = 16
    kv_host: float = 0.0  # GiB
    kv_disk: float = 0.0  # GiB
    kv_host_bandwidth: float | None = None  # GB/s
    kv_disk_bandwidth: float = 6.0  # GB/s
    cuda_graphs: bool = True
    language_model_only: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The requests: a trace, a saved workload, or drawn from lengths and arrivals."""

    rate: float | None = None  # requests/s; None: all at once
    concurrency: int = 0  # most requests in flight; 0: no limit
    requests: int | None = None  # None: 1000, or all of a trace
    prompt: str = "1024"
    output: str = "256"
    arrivals: Arrivals = "poisson"
    burstiness: float = 1.0
    burst: int = 8
    ramp_to: float | None = None
    shared_prefix: int = 0  # tokens
    groups: int = 1
    turns: int = 1
    think_s: float = 0.0
    adapters: int = 0
    structured: float = 0.0  # share of requests
    grammar_ms: float = 50.0
    seed: int = 0
    trace: Path | None = None
    trace_unit: Literal["s", "ms"] | None = None
    trace_block_tokens: int | None = None
    budget: str | None = None  # of time and memory, e.g. 2h,32GiB
    saved: Path | None = None  # workload file
    save_workload: Path | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnginesOptions:
    """How many engines there are, and how requests are spread over them."""

    replicas: int = 1
    prefill_replicas: int = 0
    prefill_tp: int | None = None  # None: that of the other engines
    router: Router = "round-robin"
    kv_shared: float = 0.0  # GiB of a pool of cached blocks that all engines share
    kv_shared_bandwidth: float | None = None  # GB/s of the pool's own links; None: they are no limit


@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetOptions(EnginesOptions):
    """Engines together, what their steps take, and what users want and pay."""

    prefill_gpu: str | None = None  # None: that of the other engines
    overheads: Path | None = None
    prices: tuple[str, ...] = ()
    steps: str = "composed"
    slo: tuple[str, ...] = ()
    price_per_gpu_hour: float | None = None
    price_per_kwh: float | None = None
    slo_percentile: float = 99.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LifeOptions:
    """How engines come and go; times in seconds."""

    autoscale: str | None = None  # MIN:MAX engines
    scale_on: Literal["utilization", "queue"] = "utilization"
    scale_target: float | None = None
    scale_interval: float = 15.0
    cooldown: float = 300.0
    start_up: float = 120.0
    drain: float | None = None  # None: until all requests are done
    mtbf: float | None = None  # hours
    on_failure: Literal["resume", "restart", "lose"] = "resume"
    detect: float = 5.0
