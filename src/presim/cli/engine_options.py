"""Options of one serving engine: its plan, data types, cache and scheduler."""

from __future__ import annotations

import click

from presim.cli.numbers import LengthOrAuto, number
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
