"""Options of ``presim serve``: the engine, the load, the fleet, and how engines come and go."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from presim.cli import completion
from presim.cli.numbers import LengthOrAuto, number
from presim.cli.options import PRICES
from presim.units import quantities

_TYPES = ("bf16", "fp8", "fp8-block", "fp4", "fp4-only", "int4", "int8", "int8-only")
WEIGHTS = click.Choice(_TYPES)
_EXPERTS = click.Choice((*_TYPES, "mxfp4"))
ENGINE = (
    click.option("--tp", type=number(quantities.DEGREE), default=1, show_default=True, help="Tensor-parallel degree."),
    click.option("--pp", type=number(quantities.DEGREE), default=1, show_default=True, help="Pipeline stages."),
    click.option(
        "--dp",
        type=number(quantities.DEGREE),
        default=1,
        show_default=True,
        help="Data-parallel degree of attention; these ranks share the experts.",
    ),
    click.option(
        "--dcp",
        type=number(quantities.DEGREE),
        default=1,
        show_default=True,
        help="Decode context parallelism: ranks of --tp that divide the tokens of the KV cache.",
    ),
    click.option("--ep", is_flag=True, help="Expert parallelism: each rank holds whole experts."),
    click.option("--weights", type=WEIGHTS, help="Data type of the weights; default: the checkpoint's own."),
    click.option(
        "--expert-weights",
        type=_EXPERTS,
        help="Data type of experts' weights; default: as --weights or the checkpoint.",
    ),
    click.option(
        "--kv",
        "cache",
        type=click.Choice(("bf16", "fp8", "int8")),
        help="KV cache; default: what the checkpoint says, else bf16.",
    ),
    click.option(
        "--kernels",
        type=click.Choice(("vllm", "sglang", "trtllm")),
        default="vllm",
        show_default=True,
        help="Kernel library for the experts.",
    ),
    click.option(
        "--fp8-products",
        type=click.Choice(("deepgemm", "flashinfer")),
        help="Library for products in FP8 by blocks; default: TensorRT-LLM has FlashInfer's, the others DeepGEMM.",
    ),
    click.option(
        "--gpu-memory-utilization",
        type=number(quantities.MEMORY_SHARE),
        help="Share of GPU memory, as in vLLM; SGLang's mem_fraction_static. Default: the engine's.",
    ),
    click.option(
        "--max-num-seqs",
        type=number(quantities.SEQUENCES),
        help="Same as in vLLM; SGLang's max_running_requests. Default: the engine's for the GPU.",
    ),
    click.option(
        "--max-num-batched-tokens",
        type=number(quantities.TOKENS),
        help="Same as in vLLM; SGLang's chunked_prefill_size. Default: the engine's for the GPU.",
    ),
    click.option(
        "--max-model-len",
        type=LengthOrAuto(quantities.TOKENS),
        help="Same as in vLLM, with auto: what the KV cache holds; default: the model's limit.",
    ),
    click.option(
        "--block-size", type=number(quantities.BLOCK_TOKENS), default=16, show_default=True, help="Tokens per KV block."
    ),
    click.option(
        "--engine-version",
        metavar="VERSION",
        help="Version of the engine, e.g. 0.6.3; default: the newest that is known. Older cores get wider intervals.",
    ),
    click.option(
        "--scheduler",
        type=click.Choice(("vllm", "sglang")),
        help="Scheduler whose decisions are taken; default: SGLang's with --kernels sglang, else vLLM's.",
    ),
    click.option(
        "--max-prefill-tokens",
        type=number(quantities.TOKENS),
        default=16384,
        show_default=True,
        help="Same as in SGLang.",
    ),
    click.option(
        "--scheduler-recv-interval",
        type=number(quantities.SCHEDULER_STEPS),
        default=1,
        help="SGLang: steps between polls for new requests.",
    ),
    click.option(
        "--prefill-schedule-interval",
        type=number(quantities.SCHEDULER_STEPS),
        default=1,
        help="Same as in vLLM: prompts only in every Nth step, while there are decodes.",
    ),
    click.option(
        "--num-gpu-blocks",
        type=number(quantities.KV_BLOCKS),
        help="Number of KV blocks; default: from the available memory.",
    ),
    click.option(
        "--max-cudagraph-capture-size",
        "graph_tokens",
        type=number(quantities.TOKENS),
        help="Same as in vLLM: tokens of the largest CUDA graph; SGLang's cuda_graph_max_bs. Default: vLLM's.",
    ),
    click.option(
        "--policy", type=click.Choice(("fcfs", "priority")), default="fcfs", show_default=True, help="Same as in vLLM."
    ),
    click.option(
        "--no-async", "async_scheduling", flag_value=False, default=True, type=bool, help="Schedule synchronously."
    ),
    click.option(
        "--no-prefix-caching", "prefix_caching", flag_value=False, default=True, type=bool, help="Same as in vLLM."
    ),
    click.option(
        "--speculative",
        type=click.Choice(("mtp", "eagle", "draft", "ngram")),
        help="Speculative decoding: the model's own MTP module, an EAGLE head, a draft model, or n-grams of the text.",
    ),
    click.option(
        "--draft-tokens", type=number(quantities.DRAFT_TOKENS), default=1, show_default=True, help="Tokens per draft."
    ),
    click.option(
        "--acceptance",
        type=number(quantities.SHARE),
        help="Probability that a drafted token is accepted; default: mtp 0.85, eagle and draft 0.7, ngram 0.3.",
    ),
    click.option("--draft-model", metavar="MODEL", help="Draft model for --speculative draft."),
    click.option("--max-loras", type=number(quantities.LORAS), default=0, help="Same as in vLLM; 0: no LoRA."),
    click.option(
        "--lora-rank", type=number(quantities.LORA_RANK), default=16, show_default=True, help="Rank of adapters."
    ),
    click.option(
        "--kv-host", type=number(quantities.GIB), default=0.0, help="GiB of host memory for cached KV blocks."
    ),
    click.option("--kv-disk", type=number(quantities.GIB), default=0.0, help="GiB of disk for cached KV blocks."),
    click.option(
        "--kv-host-bandwidth",
        type=number(quantities.GBPS),
        help="GB/s from host memory to one GPU; default: 0.8 of its PCIe or C2C link.",
    ),
    click.option(
        "--kv-disk-bandwidth",
        type=number(quantities.GBPS),
        default=6.0,
        show_default=True,
        help="GB/s from a node's disks.",
    ),
    click.option("--eager", "cuda_graphs", flag_value=False, default=True, type=bool, help="Run without CUDA graphs."),
    click.option(
        "--language-model-only",
        is_flag=True,
        help="Same as in vLLM: load no encoder of images or sound, for more cache.",
    ),
)
LOAD = (
    click.option("--rate", type=number(quantities.RATE), help="Requests per second; default: all at once."),
    click.option(
        "--concurrency", type=number(quantities.CONCURRENCY), default=0, help="Most requests in flight; 0: no limit."
    ),
    click.option(
        "--requests", type=number(quantities.REQUESTS), help="Number of requests; default: 1000, or all of a trace."
    ),
    click.option("--input", "prompt", default="1024", show_default=True, help="Prompt tokens: N, N~SPREAD or a file."),
    click.option("--output", default="256", show_default=True, help="Output tokens, in the same notation."),
    click.option(
        "--arrivals",
        type=click.Choice(("poisson", "gamma", "constant", "burst", "ramp")),
        default="poisson",
        show_default=True,
        help="Arrival process of requests.",
    ),
    click.option("--burstiness", type=number(quantities.BURSTINESS), default=1.0, help="For gamma arrivals."),
    click.option("--burst", type=number(quantities.BURST), default=8, help="Requests per burst."),
    click.option("--ramp-to", type=number(quantities.RATE), help="Rate at the end of a ramp."),
    click.option(
        "--shared-prefix", type=number(quantities.PREFIX), default=0, help="Tokens that prompts of a group share."
    ),
    click.option("--groups", type=number(quantities.GROUPS), default=1, help="Groups that share a prefix."),
    click.option("--turns", type=number(quantities.TURNS), default=1, help="Turns per conversation."),
    click.option("--think", "think_s", type=number(quantities.SECONDS), default=0.0, help="Seconds between turns."),
    click.option(
        "--adapters", type=number(quantities.ADAPTERS), default=0, help="LoRA adapters to spread requests over."
    ),
    click.option(
        "--structured", type=number(quantities.SHARE), default=0.0, help="Share of requests with structured output."
    ),
    click.option(
        "--grammar-ms",
        type=number(quantities.MILLISECONDS),
        default=50.0,
        show_default=True,
        help="Time to compile a grammar.",
    ),
    click.option("--seed", type=number(quantities.SEED), default=0, show_default=True, help="Random seed."),
    click.option("--trace", type=click.Path(path_type=Path), help="Public request trace to replay."),
    click.option(
        "--trace-unit", type=click.Choice(("s", "ms")), help="Unit of the trace's timestamps; default: as it shows."
    ),
    click.option(
        "--trace-block-tokens",
        type=number(quantities.BLOCK_TOKENS),
        help="Tokens that a hash_id of the trace stands for; default: as it shows.",
    ),
    click.option(
        "--budget",
        metavar="TIME,MEMORY",
        help="Refuse a load whose simulation would take more, e.g. 2h,32GiB; default: 10min,8GiB.",
    ),
    click.option("--workload", "saved", type=click.Path(path_type=Path), help="Workload file from --save-workload."),
    click.option("--save-workload", type=click.Path(path_type=Path), help="Save the workload to a file."),
)
ENGINES_TOGETHER = (
    click.option(
        "--replicas", type=number(quantities.ENGINES), default=1, show_default=True, help="Number of engines."
    ),
    click.option(
        "--prefill-replicas", type=number(quantities.ENGINES_OR_NONE), default=0, help="Prefill-only engines."
    ),
    click.option("--prefill-tp", type=number(quantities.DEGREE), help="Their tensor-parallel size; default: --tp."),
    click.option(
        "--kv-shared",
        type=number(quantities.GIB),
        default=0.0,
        help="GiB of a pool of cached KV blocks that all engines share.",
    ),
    click.option(
        "--kv-shared-bandwidth",
        type=number(quantities.GBPS),
        help="GB/s of the pool's own links; default: only those of engines limit it.",
    ),
    click.option(
        "--router",
        type=click.Choice(("round-robin", "least-loaded", "power-of-two", "prefix", "session")),
        default="round-robin",
        show_default=True,
        help="Load-balancing policy between engines.",
    ),
)
FLEET = (
    *ENGINES_TOGETHER,
    click.option(
        "--prefill-gpu", metavar="ID", help="Another GPU of prefill-only engines.", shell_complete=completion.gpus
    ),
    click.option("--overheads", type=click.Path(path_type=Path), help="File from `presim calibrate serving`."),
    PRICES,
    click.option(
        "--steps",
        default="composed",
        show_default=True,
        metavar="HOW",
        help="Step times: composed; captured from vLLM's model runner; or the folder of a captured set.",
    ),
    click.option(
        "--slo",
        multiple=True,
        metavar="METRIC:MS",
        help="Limit of latency, e.g. ttft:500, tpot:50@p90 or e2el:5000@mean; the percentile is --slo-percentile "
        "unless named; repeatable.",
    ),
    click.option("--price-per-gpu-hour", type=number(quantities.PRICE), help="Price per GPU hour."),
    click.option("--price-per-kwh", type=number(quantities.PRICE), help="Price per kWh."),
    click.option(
        "--slo-percentile",
        type=number(quantities.PERCENTILE),
        default=99.0,
        show_default=True,
        help="Percentile of requests that must meet the SLO.",
    ),
)


LIFE = (
    click.option(
        "--autoscale", metavar="MIN:MAX", help="Autoscale between MIN and MAX engines, instead of --replicas."
    ),
    click.option(
        "--scale-on",
        type=click.Choice(("utilization", "queue")),
        default="utilization",
        show_default=True,
        help="Signal: requests per engine relative to --max-num-seqs, or waiting requests.",
    ),
    click.option(
        "--scale-target",
        type=number(quantities.SCALE_TARGET),
        help="Target of the signal per engine; default: utilization 0.7, queue 4.",
    ),
    click.option(
        "--scale-interval",
        type=number(quantities.POSITIVE_SECONDS),
        default=15.0,
        show_default=True,
        help="Seconds between decisions of the autoscaler.",
    ),
    click.option(
        "--cooldown",
        type=number(quantities.SECONDS),
        default=300.0,
        show_default=True,
        help="Seconds that fewer engines must suffice before one is removed.",
    ),
    click.option(
        "--start-up",
        type=number(quantities.SECONDS),
        default=120.0,
        show_default=True,
        help="Seconds to start an engine.",
    ),
    click.option(
        "--drain",
        type=number(quantities.SECONDS),
        help="Seconds a removed engine may finish requests; default: until all are done.",
    ),
    click.option("--mtbf", type=number(quantities.HOURS), help="Hours between failures of an engine."),
    click.option(
        "--on-failure",
        type=click.Choice(("resume", "restart", "lose")),
        default="resume",
        show_default=True,
        help="Requests of a failed engine keep their tokens, restart, or are lost.",
    ),
    click.option(
        "--detect", type=number(quantities.SECONDS), default=5.0, show_default=True, help="Seconds to detect a failure."
    ),
)


_Function = TypeVar("_Function", bound=Callable[..., Any])
_Options = TypeVar("_Options")


def add_options(*groups: tuple[Any, ...]) -> Callable[[_Function], _Function]:
    """Decorator that adds all options of some groups, in order."""

    def add(function: _Function) -> _Function:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return add


def pop_options(group: type[_Options], options: dict[str, Any]) -> _Options:
    """Remove the options of a group from a verb's options, and return them as its value."""
    return group(**{field.name: options.pop(field.name) for field in dataclasses.fields(group)})  # type: ignore[arg-type]


def redeclared(options: tuple[Any, ...], flag: str, name: str, **settings: Any) -> Any:
    """One option of a group under another name, with further settings of click's, which precede those declared."""

    def declarations(**values: object) -> None:
        """Carries the options."""

    for option in options:
        option(declarations)
    declared = next(option for option in declarations.__click_params__ if flag in option.opts)  # type: ignore[attr-defined]
    shared = {"type": declared.type, "help": declared.help}
    if declared.is_flag:
        shared["flag_value"] = declared.flag_value
    return click.option(flag, name, **{**shared, **settings})
