"""Options of ``presim rl`` beside training: the batch, the placement, the engines, and what lies between phases."""

from __future__ import annotations

import click

from presim.cli.engine_options import ENGINE as SERVING_ENGINE
from presim.cli.numbers import number
from presim.cli.option_groups import redeclared
from presim.cli.output_files import html_option, json_option, quiet_option
from presim.units import quantities

BATCH = (
    click.option("--prompts", type=number(quantities.BATCH), default=512, show_default=True, help="Prompts of a step."),
    click.option(
        "--samples", type=number(quantities.BATCH), default=16, show_default=True, help="Responses to each prompt."
    ),
    click.option(
        "--prompt-tokens", default="1024", show_default=True, help="Tokens of prompts, notation of --response."
    ),
    click.option(
        "--response",
        metavar="LENGTHS",
        help="Tokens of responses: N, N~SPREAD, a file, or lognormal:mean=8000,p99=30000,max=32768.",
    ),
    click.option(
        "--algorithm",
        type=click.Choice(("grpo", "dapo", "reinforce", "rloo", "ppo")),
        default="grpo",
        show_default=True,
        help="grpo and ppo have a reference policy, others only with --reference; ppo has a critic.",
    ),
    click.option(
        "--turns", type=number(quantities.BATCH), default=1, show_default=True, help="Turns of each response."
    ),
    click.option(
        "--tool-seconds",
        default="0",
        show_default=True,
        help="With --turns: seconds in which a tool or an environment answers: N, N~SPREAD, a file, or "
        "lognormal:mean=2,p99=20,max=60.",
    ),
    click.option("--tool-tokens", type=number(quantities.TOKENS), help="With --turns: tokens of such an answer."),
    click.option(
        "--tool-workers",
        type=number(quantities.BATCH),
        help="With --turns: answers of tools at once; other calls wait. Default: any number.",
    ),
    click.option(
        "--keep",
        type=number(quantities.SHARE),
        default=1.0,
        show_default=True,
        help="Share of prompts that a filter of rewards keeps (DAPO); generation goes on until enough are kept.",
    ),
    click.option(
        "--round-prompts",
        type=number(quantities.BATCH),
        help="With --keep: prompts generated at once. Default: those of a step.",
    ),
    click.option(
        "--spare-prompts",
        type=number(quantities.BATCH),
        help="Prompts begun beside those of a step; groups that end last are aborted and dropped. Default: none.",
    ),
    click.option(
        "--cut-tail",
        type=number(quantities.SHARE),
        default=0.0,
        show_default=True,
        help="Share of responses that are aborted when the others are complete, and dropped.",
    ),
    click.option("--mini-batch", type=number(quantities.BATCH), help="Prompts of an update. Default: all."),
    click.option(
        "--epochs", type=number(quantities.BATCH), default=1, show_default=True, help="Passes over a step's batch."
    ),
)
PLACEMENT = (
    click.option(
        "--placement",
        metavar="[colocated|separate|hybrid|FILE]",
        default="colocated",
        show_default=True,
        help="Both sides on the same GPUs by turns, or each on its own; hybrid: GPUs that train generate, too, beside "
        "others. Or a TOML file of pools with roles.",
    ),
    click.option(
        "--rollout-gpus",
        type=number(quantities.GPUS),
        help="With separate and hybrid: GPUs that only generate. Default: half.",
    ),
    click.option(
        "--staleness",
        type=number(quantities.STALENESS),
        default=0.0,
        show_default=True,
        help="With separate: batches generated ahead of training. 1: one-step off-policy; more: fully asynchronous.",
    ),
    click.option("--partial", is_flag=True, help="New weights interrupt responses, which go on with them."),
)
ENGINE = (
    click.option(
        "--rollout-tp", "engine_tp", type=number(quantities.DEGREE), help="GPUs of an engine. Default: what fits."
    ),
    click.option(
        "--rollout-ep", "engine_ep", is_flag=True, default=None, help="Engines hold whole experts on each GPU."
    ),
    click.option("--kernels", "engine_kernels", type=click.Choice(("vllm", "sglang")), help="Engine. Default: vllm."),
    click.option(
        "--vllm-start",
        type=click.Choice(("server", "llm", "async-llm")),
        default="server",
        show_default=True,
        help="How the framework starts vLLM, which decides its default limits: AsyncLLM runs 128 responses at once.",
    ),
    redeclared(
        SERVING_ENGINE,
        "--gpu-memory-utilization",
        "engine_gpu_memory_utilization",
        help="Share of GPU memory for the engine. Default: 0.5 colocated, else the engine's.",
    ),
    redeclared(SERVING_ENGINE, "--eager", "engine_cuda_graphs", default=None),
    redeclared(SERVING_ENGINE, "--max-num-seqs", "engine_max_num_seqs"),
    redeclared(SERVING_ENGINE, "--max-num-batched-tokens", "engine_max_num_batched_tokens"),
)
OTHERS = (
    click.option(
        "--sleep-level",
        type=number(quantities.SLEEP_LEVEL),
        default=2,
        show_default=True,
        help="Of a colocated engine while GPUs train: 0 keeps all in GPU memory, 1 has weights on the host, 2 nothing.",
    ),
    click.option(
        "--transfer",
        type=click.Choice(("per-parameter", "packed", "checkpoint-engine")),
        default="per-parameter",
        show_default=True,
        help="Weights go to engines one by one, as verl measured it, or packed: between pools as fast as links are, "
        "colocated as NeMo RL measured it; checkpoint-engine is verl's, between pools.",
    ),
    click.option(
        "--overlap-sync",
        is_flag=True,
        help="Engines of their own generate during a transfer of weights, and stop to load them.",
    ),
    click.option(
        "--assignment",
        type=click.Choice(("balanced", "consecutive")),
        default="balanced",
        show_default=True,
        help="Responses go to the engine with the fewest, or each engine gets its part of the batch, prompt by prompt.",
    ),
    click.option(
        "--sglang-release",
        type=click.Choice(("0.4.6", "0.5")),
        default="0.5",
        show_default=True,
        help="With --kernels sglang: 0.4.6 is of May 2025, as verl 0.5 has it; its rollouts take 1.5 times as long.",
    ),
    click.option(
        "--controller",
        type=click.Choice(("none", "verl")),
        default="none",
        show_default=True,
        help="Whose process sends each phase's padded batch to all workers, which takes seconds with long responses.",
    ),
    click.option(
        "--reward-seconds",
        default="0",
        show_default=True,
        help="Seconds of a response's reward, or their distribution; notation of --tool-seconds.",
    ),
    click.option(
        "--reward-workers", type=number(quantities.BATCH), default=64, show_default=True, help="Rewards at once."
    ),
    click.option(
        "--search", "searches", is_flag=True, help="Compare placements, and show the one with the fastest step."
    ),
    click.option(
        "--vary",
        multiple=True,
        metavar="KNOB=V,V…",
        help="With --search: values of tp, pp, ep, cp, micro-tokens, recompute, offload, rollout-tp, max-num-seqs, "
        "gpu-memory-utilization, rollout-gpus, staleness (2p: partial), nodes or placement. Repeatable.",
    ),
    click.option("--study", metavar="FILE", help="With --search: store finished placements, and resume from them."),
    click.option("--force", is_flag=True, help="Predict also what memory is predicted not to hold."),
    click.option(
        "--steps", type=number(quantities.STEPS), help="Steps to simulate. Default: 1; off-policy until steady, and 4."
    ),
    click.option("--seed", type=number(quantities.SEED), default=0, show_default=True, help="Of the lengths."),
    click.option("--price-per-gpu-hour", type=number(quantities.PRICE), help="Price per GPU hour."),
    json_option,
    click.option(
        "--write",
        "written",
        nargs=2,
        metavar="FRAMEWORK FILE",
        help="Write the job, with --search the fastest, in the keys of verl, nemo-rl, trl, slime or openrlhf.",
    ),
    html_option,
    quiet_option,
)
