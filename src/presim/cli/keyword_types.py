"""Keywords of the verbs in Python, with their types. Written by docs/generate.py from the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict

File: TypeAlias = str | os.PathLike[str]
Word: TypeAlias = str | float  # as on the command line; a number stands for itself


class ComposeKeywords(TypedDict, total=False):
    """Options of ``presim compose``, which ``presim compose --help-all`` explains."""

    gpu: Word | None
    node: Word | None
    fabric: Word | None
    nodes: int | None
    gpus_per_node: int | None
    world_size: int | None
    cluster: File | None
    plan: File | None
    seq: int | None
    mbs: int | None
    tp: int | None
    cp: int | None
    cp_style: Literal["all-gather", "ulysses", "ring"] | None
    ep: int | None
    expert_exchange: Literal["all-to-all", "all-gather", "deepep"] | None
    routing: Word | None
    expert_capacity: float | None
    pp: int | None
    vpp: int | None
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe", "dualpipev"] | None
    schedule_file: Word | None
    stages: Word | None
    dp_style: Literal["fsdp2", "hsdp", "ddp", "zero1"] | None
    shard: int | None
    global_batch: int | None
    recompute: Literal["none", "full"] | None
    activation_budget: float | None
    optimizer: Literal["none", "adamw", "adamw-bf16", "adamw-8bit", "sgd", "momentum"] | None
    offload_activations: int | None
    offload_optimizer: Literal["none", "cpu", "states"] | None
    attention: Literal["auto", "cudnn", "flash", "flex"] | None
    pass_: Word | Sequence[Word] | None
    recompute_blocks: int | None
    cuda_graphs: bool | None
    reshard: bool | None
    sp: bool | None
    pad_experts: bool | None
    vocabulary: bool | None
    overlap: bool | None
    side_by_side: bool | None
    clip: bool | None
    dtype: Literal["bfloat16", "float16", "float32"] | None
    framework: Literal["auto", "eager", "megatron", "torchtitan", "hf", "deepspeed"] | None
    precision: Literal["bf16", "fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4", "mxfp4"] | None
    framework_args: Word | None
    from_: Word | None
    like: File | None
    write: File | None
    save: File | None
    no_contention: bool | None
    overlap_model: Word | None
    host_factor: float | None
    host_time: int | None
    prices: File | Sequence[File] | None
    bandwidth: Word | Sequence[Word] | None
    straggler: Word | Sequence[Word] | None
    scale_op: Word | Sequence[Word] | None
    estimator: Word | Sequence[Word] | None
    html: File | None
    perfetto: File | None
    memory_snapshot: File | None
    chakra: File | None
    kineto: File | None
    tokens: float | None
    price_per_gpu_hour: float | None
    sequence: int | None
    micro_batch: int | None
    tensor: int | None
    context: int | None
    context_style: Literal["all-gather", "ulysses", "ring"] | None
    expert: int | None
    pipeline: int | None
    virtual: int | None
    data_style: Literal["fsdp2", "hsdp", "ddp", "zero1"] | None
    passes: Word | Sequence[Word] | None
    sequence_parallel: bool | None
    vocabulary_parallel: bool | None
    contention: bool | None
    stragglers: Word | Sequence[Word] | None


class ServeKeywords(TypedDict, total=False):
    """Options of ``presim serve``, which ``presim serve --help-all`` explains."""

    gpu: Word | None
    node: Word | None
    fabric: Word | None
    cluster: File | None
    from_: Word | None
    tp: int | None
    pp: int | None
    dp: int | None
    dcp: int | None
    ep: bool | None
    weights: Literal["bf16", "fp8", "fp8-block", "fp4", "fp4-only", "int4", "int8", "int8-only"] | None
    expert_weights: Literal["bf16", "fp8", "fp8-block", "fp4", "fp4-only", "int4", "int8", "int8-only", "mxfp4"] | None
    kv: Literal["bf16", "fp8", "int8"] | None
    kernels: Literal["vllm", "sglang", "trtllm"] | None
    fp8_products: Literal["deepgemm", "flashinfer"] | None
    gpu_memory_utilization: float | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_model_len: int | Literal["auto"] | None
    block_size: int | None
    engine_version: Word | None
    scheduler: Literal["vllm", "sglang"] | None
    max_prefill_tokens: int | None
    scheduler_recv_interval: int | None
    prefill_schedule_interval: int | None
    num_gpu_blocks: int | None
    max_cudagraph_capture_size: int | None
    policy: Literal["fcfs", "priority"] | None
    no_async: bool | None
    no_prefix_caching: bool | None
    speculative: Literal["mtp", "eagle", "draft", "ngram"] | None
    draft_tokens: int | None
    acceptance: float | None
    draft_model: Word | None
    max_loras: int | None
    lora_rank: int | None
    kv_host: float | None
    kv_disk: float | None
    kv_host_bandwidth: float | None
    kv_disk_bandwidth: float | None
    eager: bool | None
    language_model_only: bool | None
    rate: float | None
    concurrency: int | None
    requests: int | None
    input: Word | None
    output: Word | None
    arrivals: Literal["poisson", "gamma", "constant", "burst", "ramp"] | None
    burstiness: float | None
    burst: int | None
    ramp_to: float | None
    shared_prefix: int | None
    groups: int | None
    turns: int | None
    think: float | None
    adapters: int | None
    structured: float | None
    grammar_ms: float | None
    seed: int | None
    trace: File | None
    trace_unit: Literal["s", "ms"] | None
    trace_block_tokens: int | None
    budget: Word | None
    workload: File | None
    save_workload: File | None
    replicas: int | None
    prefill_replicas: int | None
    prefill_tp: int | None
    kv_shared: float | None
    kv_shared_bandwidth: float | None
    router: Literal["round-robin", "least-loaded", "power-of-two", "prefix", "session"] | None
    prefill_gpu: Word | None
    overheads: File | None
    prices: File | Sequence[File] | None
    steps: Word | None
    slo: Word | Sequence[Word] | None
    price_per_gpu_hour: float | None
    price_per_kwh: float | None
    slo_percentile: float | None
    autoscale: Word | None
    scale_on: Literal["utilization", "queue"] | None
    scale_target: float | None
    scale_interval: float | None
    cooldown: float | None
    start_up: float | None
    drain: float | None
    mtbf: float | None
    on_failure: Literal["resume", "restart", "lose"] | None
    detect: float | None
    detailed: bool | None
    detail: bool | None
    html: File | None
    perfetto: File | None
    listen: int | None
    speed: float | None
    engine: Literal["fast", "vllm", "sglang"] | None
    cuda_graphs: bool | None


class DeployKeywords(TypedDict, total=False):
    """Options of ``presim deploy``, which ``presim deploy --help-all`` explains."""

    gpu: Word | Sequence[Word] | None
    input: Word | None
    output: Word | None
    trace: File | None
    shared_prefix: int | None
    groups: int | None
    slo: Word | Sequence[Word] | None
    max_gpus: int | None
    total_gpus: int | None
    rate: float | None
    max_price: float | None
    max_cost: float | None
    max_power: Word | None
    price_per_gpu_hour: Word | Sequence[Word] | None
    weights: (
        Literal["bf16", "fp8", "fp8-block", "fp4", "fp4-only", "int4", "int8", "int8-only"]
        | Sequence[Literal["bf16", "fp8", "fp8-block", "fp4", "fp4-only", "int4", "int8", "int8-only"]]
        | None
    )
    engine: Word | Sequence[Word] | None
    engine_version: Word | None
    kv: Literal["bf16", "fp8"] | Sequence[Literal["bf16", "fp8"]] | None
    kv_host: float | Sequence[float] | None
    speculative: Literal["mtp", "ngram"] | None
    draft_tokens: int | None
    acceptance: float | None
    overheads: File | None
    prices: File | Sequence[File] | None
    no_disaggregation: bool | None
    csv: File | None
    html: File | None
    write: File | None
    router: Literal["vllm", "sglang", "dynamo", "llm-d"] | None


class ExplainKeywords(TypedDict, total=False):
    """Options of ``presim explain``, which ``presim explain --help-all`` explains."""

    gpu: Word | None
    node: Word | None
    fabric: Word | None
    nodes: int | None
    gpus_per_node: int | None
    world_size: int | None
    cluster: File | None
    no_contention: bool | None
    overlap_model: Word | None
    host_factor: float | None
    host_time: int | None
    prices: File | Sequence[File] | None
    bandwidth: Word | Sequence[Word] | None
    straggler: Word | Sequence[Word] | None
    scale_op: Word | Sequence[Word] | None
    estimator: Word | Sequence[Word] | None
    model: Word | None
    plan: File | None
    confirm: int | None
    vary: Word | Sequence[Word] | None
    framework: Literal["auto", "torchtitan", "megatron", "deepspeed", "accelerate"] | None
    study: File | None
    html: File | None
    contention: bool | None
    stragglers: Word | Sequence[Word] | None


class TrainingKeywords(TypedDict, total=False):
    """Options of ``presim training``, which ``presim training --help-all`` explains."""

    tokens: float | None
    price_per_gpu_hour: float | None
    price_per_kwh: float | None
    failures: Word | None
    mtbf: float | None
    checkpoint: float | None
    interval: float | None
    restart: float | None
    repair: float | None
    spares: int | None
    elastic: bool | None
    jitter: float | None
    runs: int | None
    seed: int | None
    budget: Word | None
    html: File | None


class GateKeywords(TypedDict, total=False):
    """Options of ``presim gate``, which ``presim gate --help-all`` explains."""

    baseline: File | None
    keep: File | None
    markdown: File | None
    junit: File | None
    html: File | None


class ImportKeywords(TypedDict, total=False):
    """Options of ``presim import``, which ``presim import --help-all`` explains."""

    out: File | None
    step: int | None
    missing: Literal["refuse", "same"] | None
    from_: Word | None
    gpu: Word | None
    node: Word | None
    fabric: Word | None
    nodes: int | None
    gpus_per_node: int | None
    world_size: int | None
    cluster: File | None
    no_contention: bool | None
    overlap_model: Word | None
    host_factor: float | None
    host_time: int | None
    prices: File | Sequence[File] | None
    bandwidth: Word | Sequence[Word] | None
    straggler: Word | Sequence[Word] | None
    scale_op: Word | Sequence[Word] | None
    estimator: Word | Sequence[Word] | None
    html: File | None
    perfetto: File | None
    memory_snapshot: File | None
    chakra: File | None
    kineto: File | None
    tokens: float | None
    price_per_gpu_hour: float | None
    contention: bool | None
    stragglers: Word | Sequence[Word] | None


class NetworkKeywords(TypedDict, total=False):
    """Options of ``presim network show``, which ``presim network show --help-all`` explains."""

    collective: Word | None
    bytes: Word | None
    ranks: Word | None
    together: bool | None
    resolution: Literal["link", "flow"] | None
    budget: Word | None
    plot: File | None
    export: Sequence[Word] | None
    html: File | None


class ValidateKeywords(TypedDict, total=False):
    """Options of ``presim validate``, which ``presim validate --help-all`` explains."""

    out: File | None
    report: File | None
    jobs: int | None
    limit: int | None
    only: Word | None
    recipes: File | None
    captures: File | None
    no_contention: bool | None
    kind: Literal["runs", "collectives", "operators", "serving"] | None
    again: bool | None
    oracle: File | Sequence[File] | None
    job: File | None
    gpu: Word | None
    html: File | None
