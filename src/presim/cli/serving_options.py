"""Options of ``presim serve``: the engine, the load, the fleet, and how engines come and go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from presim.cli.options import PRICES

WEIGHTS = click.Choice(("bf16", "fp8", "fp8-block", "fp4", "int4"))
_EXPERTS = click.Choice(("bf16", "fp8", "fp8-block", "fp4", "mxfp4", "int4"))
ENGINE = (
    click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="Tensor-parallel degree."),
    click.option("--pp", type=click.IntRange(1), default=1, show_default=True, help="Pipeline stages."),
    click.option(
        "--dp",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Data-parallel degree of attention; these ranks share the experts.",
    ),
    click.option("--ep", is_flag=True, help="Expert parallelism: each rank holds whole experts."),
    click.option("--weights", type=WEIGHTS, default="bf16", show_default=True, help="Data type of the weights."),
    click.option("--expert-weights", type=_EXPERTS, help="Data type of expert weights; default: same as --weights."),
    click.option(
        "--kv", "cache", type=click.Choice(("bf16", "fp8", "int8")), default="bf16", show_default=True, help="KV cache."
    ),
    click.option(
        "--kernels",
        type=click.Choice(("vllm", "sglang", "trtllm")),
        default="vllm",
        show_default=True,
        help="Kernel library for the experts.",
    ),
    click.option("--gpu-memory-utilization", type=float, default=0.92, show_default=True, help="Same as in vLLM."),
    click.option("--max-num-seqs", type=click.IntRange(1), default=256, show_default=True, help="Same as in vLLM."),
    click.option(
        "--max-num-batched-tokens", type=click.IntRange(1), default=8192, show_default=True, help="Same as in vLLM."
    ),
    click.option("--max-model-len", type=click.IntRange(1), help="Same as in vLLM; default: the model's limit."),
    click.option("--block-size", type=click.IntRange(1), default=16, show_default=True, help="Tokens per KV block."),
    click.option(
        "--scheduler",
        type=click.Choice(("vllm", "sglang")),
        help="Scheduler whose decisions are taken; default: SGLang's with --kernels sglang, else vLLM's.",
    ),
    click.option(
        "--max-prefill-tokens", type=click.IntRange(1), default=16384, show_default=True, help="Same as in SGLang."
    ),
    click.option(
        "--scheduler-recv-interval",
        type=click.IntRange(1),
        default=1,
        help="SGLang: steps between polls for new requests.",
    ),
    click.option(
        "--num-gpu-blocks", type=click.IntRange(2), help="Number of KV blocks; default: from the available memory."
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
    click.option("--draft-tokens", type=click.IntRange(1, 16), default=1, show_default=True, help="Tokens per draft."),
    click.option(
        "--acceptance",
        type=click.FloatRange(0, 1),
        help="Probability that a drafted token is accepted; default: mtp 0.85, eagle and draft 0.7, ngram 0.3.",
    ),
    click.option("--draft-model", metavar="MODEL", help="Draft model for --speculative draft."),
    click.option("--max-loras", type=click.IntRange(0, 256), default=0, help="Same as in vLLM; 0: no LoRA."),
    click.option("--lora-rank", type=click.IntRange(1, 512), default=16, show_default=True, help="Rank of adapters."),
    click.option("--kv-host", type=click.FloatRange(0), default=0.0, help="GiB of host memory for cached KV blocks."),
    click.option("--kv-disk", type=click.FloatRange(0), default=0.0, help="GiB of disk for cached KV blocks."),
    click.option(
        "--kv-host-bandwidth",
        type=click.FloatRange(0, min_open=True),
        help="GB/s from host memory to one GPU; default: 0.8 of its PCIe or C2C link.",
    ),
    click.option(
        "--kv-disk-bandwidth",
        type=click.FloatRange(0, min_open=True),
        default=6.0,
        show_default=True,
        help="GB/s from a node's disks.",
    ),
    click.option("--eager", "cuda_graphs", flag_value=False, default=True, type=bool, help="Run without CUDA graphs."),
)
LOAD = (
    click.option("--rate", type=click.FloatRange(0, min_open=True), help="Requests per second; default: all at once."),
    click.option(
        "--concurrency", type=click.IntRange(0, 1_000_000_000), default=0, help="Most requests in flight; 0: no limit."
    ),
    click.option("--requests", type=click.IntRange(1), help="Number of requests; default: 1000, or all of a trace."),
    click.option("--input", "prompt", default="1024", show_default=True, help="Prompt tokens: N, N~SPREAD or a file."),
    click.option("--output", default="256", show_default=True, help="Output tokens, in the same notation."),
    click.option(
        "--arrivals",
        type=click.Choice(("poisson", "gamma", "constant", "burst", "ramp")),
        default="poisson",
        show_default=True,
        help="Arrival process of requests.",
    ),
    click.option("--burstiness", type=click.FloatRange(0, min_open=True), default=1.0, help="For gamma arrivals."),
    click.option("--burst", type=click.IntRange(1), default=8, help="Requests per burst."),
    click.option("--ramp-to", type=click.FloatRange(0, min_open=True), help="Rate at the end of a ramp."),
    click.option("--shared-prefix", type=click.IntRange(0), default=0, help="Tokens that prompts of a group share."),
    click.option("--groups", type=click.IntRange(1), default=1, help="Groups that share a prefix."),
    click.option("--turns", type=click.IntRange(1), default=1, help="Turns per conversation."),
    click.option("--think", "think_s", type=click.FloatRange(0), default=0.0, help="Seconds between turns."),
    click.option("--adapters", type=click.IntRange(0), default=0, help="LoRA adapters to spread requests over."),
    click.option(
        "--structured", type=click.FloatRange(0, 1), default=0.0, help="Share of requests with structured output."
    ),
    click.option(
        "--grammar-ms", type=click.FloatRange(0), default=50.0, show_default=True, help="Time to compile a grammar."
    ),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed."),
    click.option("--trace", type=click.Path(path_type=Path), help="Public request trace to replay."),
    click.option("--workload", "saved", type=click.Path(path_type=Path), help="Workload file from --save-workload."),
    click.option("--save-workload", type=click.Path(path_type=Path), help="Save the workload to a file."),
)
FLEET = (
    click.option("--replicas", type=click.IntRange(1), default=1, show_default=True, help="Number of engines."),
    click.option("--prefill-replicas", type=click.IntRange(0), default=0, help="Prefill-only engines."),
    click.option("--prefill-tp", type=click.IntRange(1), help="Their tensor-parallel size; default: --tp."),
    click.option(
        "--router",
        type=click.Choice(("round-robin", "least-loaded", "power-of-two", "prefix", "session")),
        default="round-robin",
        show_default=True,
        help="Load-balancing policy between engines.",
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
    click.option("--slo", multiple=True, metavar="METRIC:MS", help="ttft:500, tpot:50, e2el:5000; repeatable."),
    click.option("--price-per-gpu-hour", type=click.FloatRange(0, min_open=True), help="Price per GPU hour."),
    click.option("--price-per-kwh", type=click.FloatRange(0, min_open=True), help="Price per kWh."),
    click.option(
        "--slo-percentile",
        type=click.FloatRange(0, 100),
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
        type=click.FloatRange(0, min_open=True),
        help="Target of the signal per engine; default: utilization 0.7, queue 4.",
    ),
    click.option(
        "--scale-interval",
        type=float,
        default=15.0,
        show_default=True,
        help="Seconds between decisions of the autoscaler.",
    ),
    click.option(
        "--cooldown",
        type=float,
        default=300.0,
        show_default=True,
        help="Seconds that fewer engines must suffice before one is removed.",
    ),
    click.option(
        "--start-up", type=click.FloatRange(0), default=120.0, show_default=True, help="Seconds to start an engine."
    ),
    click.option(
        "--drain",
        type=click.FloatRange(0),
        help="Seconds a removed engine may finish requests; default: until all are done.",
    ),
    click.option("--mtbf", type=click.FloatRange(0, min_open=True), help="Hours between failures of an engine."),
    click.option(
        "--on-failure",
        type=click.Choice(("resume", "restart", "lose")),
        default="resume",
        show_default=True,
        help="Requests of a failed engine keep their tokens, restart, or are lost.",
    ),
    click.option(
        "--detect", type=click.FloatRange(0), default=5.0, show_default=True, help="Seconds to detect a failure."
    ),
)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def add_options(*groups: tuple[Any, ...]) -> Callable[[_Function], _Function]:
    """Decorator that adds all options of some groups, in order."""

    def add(function: _Function) -> _Function:
        for option in reversed([one for group in groups for one in group]):
            function = option(function)
        return function

    return add
