"""``presim rl``: predict post-training by reinforcement learning, rollouts and training together."""

from __future__ import annotations

from typing import Any

import click

from presim.cli.numbers import number
from presim.cli.options import cluster_options
from presim.cli.output_files import html_option, json_option, quiet_option
from presim.cli.plan_options import value_option
from presim.cli.serving_options import ENGINE, add_options, redeclared
from presim.cli.verb import Verb
from presim.units import quantities

_BATCH = (
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
        help="With --turns: seconds in which a tool or an environment answers, as MEAN or MEAN~DEVIATION.",
    ),
    click.option("--tool-tokens", type=number(quantities.TOKENS), help="With --turns: tokens of such an answer."),
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
_PLACEMENT = (
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
_TRAINER = (
    value_option("--tp", default=1, show_default=True),
    value_option("--cp", help="Context-parallel (Ulysses) degree. Default: what fits."),
    value_option("--pp", default=1, show_default=True),
    value_option("--ep", default=1, show_default=True),
    value_option("--dp-style", type=click.Choice(("fsdp2", "ddp", "zero1")), default="fsdp2", show_default=True),
    value_option("--recompute", default="full", show_default=True),
    value_option("--vpp", default=1, show_default=True),
    value_option("--stages"),
    value_option("--expert-exchange", default="all-to-all", show_default=True),
    value_option("--routing", default="balanced", show_default=True),
    value_option("--offload-optimizer", default="none", show_default=True),
    click.option("--reshard/--no-reshard", default=True, help="FSDP2: free parameters after a block's forward."),
    click.option(
        "--balance/--no-balance",
        default=True,
        help="Ranks get shares of a batch with balanced sums of tokens, or consecutive ones.",
    ),
    click.option(
        "--pad-to-longest",
        "pads_to_longest",
        is_flag=True,
        help="With --micro-sequences: each response is padded to the batch's longest, as without packing.",
    ),
    click.option(
        "--lora-rank",
        type=number(quantities.BATCH),
        help="Train adapters of this rank; steps of Hugging Face's or Megatron-Bridge's trainer are captured for it.",
    ),
    click.option(
        "--merge-adapters", is_flag=True, help="With --lora-rank: engines get merged weights, not the adapters alone."
    ),
    click.option(
        "--routing-replay", is_flag=True, help="The routers' choices of rollouts go with each batch to the updates."
    ),
    click.option(
        "--micro-tokens",
        type=number(quantities.TOKENS),
        help="Most tokens of a micro-batch on a GPU. Default: the longest sample, at least 16384.",
    ),
    click.option(
        "--micro-sequences",
        type=number(quantities.BATCH),
        help="Responses of each micro-batch. Default: as many as its tokens hold.",
    ),
    click.option(
        "--logprob-sequences",
        type=number(quantities.BATCH),
        help="The same for log-probabilities. Default: --micro-sequences.",
    ),
    click.option(
        "--logits",
        type=click.Choice(("composed", "verl-megatron", "nemo-rl-megatron")),
        default="composed",
        show_default=True,
        help="Whose code computes log-probabilities: how often it passes over fp32 logits.",
    ),
    click.option(
        "--framework",
        type=click.Choice(("megatron", "hf")),
        help="Capture the framework's own trainer for the update, as presim compose does.",
    ),
    click.option(
        "--fusions",
        metavar="PARTS",
        help="Parts of composed layers that are fused: norm, rotary, activation, with commas, or none. Default: all of "
        "Megatron's, with zero1.",
    ),
    click.option(
        "--train",
        metavar="DIR",
        help="A saved capture (presim run --save) of a step on the training GPUs, for updates and log-probabilities.",
    ),
    click.option(
        "--framework-args", metavar="'FIELD=VALUE ...'", help="With --framework: fields of its configuration."
    ),
    click.option(
        "--logprob-tokens",
        type=number(quantities.TOKENS),
        help="The same for log-probabilities. Default: --micro-tokens.",
    ),
    click.option("--reference/--no-reference", default=None, help="Log-probabilities of a frozen reference."),
    click.option("--critic/--no-critic", default=None, help="A critic of the model's size. Default: with ppo."),
    click.option("--reward-model", is_flag=True, help="A reward model of the model's size on the training GPUs."),
    click.option(
        "--old-logprobs/--no-old-logprobs", default=True, help="Log-probabilities of the policy before the update."
    ),
    click.option(
        "--offload",
        metavar="WHAT",
        default="",
        help="In host memory while not used: parameters, optimizer, reference, with commas.",
    ),
)
_ENGINE = (
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
        ENGINE,
        "--gpu-memory-utilization",
        "engine_gpu_memory_utilization",
        help="Share of GPU memory for the engine. Default: 0.5 colocated, else the engine's.",
    ),
    redeclared(ENGINE, "--eager", "engine_cuda_graphs", default=None),
    redeclared(ENGINE, "--max-num-seqs", "engine_max_num_seqs"),
    redeclared(ENGINE, "--max-num-batched-tokens", "engine_max_num_batched_tokens"),
)
_OTHERS = (
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
        "--reward-seconds", type=number(quantities.SECONDS), default=0.0, help="Seconds of a response's reward."
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


@click.command("rl", cls=Verb)
@click.argument("words", nargs=-1, metavar="[MODEL] [KEY=VALUE]...")
@click.option(
    "--from",
    "recipe",
    nargs=2,
    metavar="FRAMEWORK FILE",
    help="Read a recipe of verl, nemo-rl, trl, slime, openrlhf, areal or rlinf; KEY=VALUE override its keys, other "
    "options both.",
)
@cluster_options
@add_options(_BATCH, _PLACEMENT, _TRAINER, _ENGINE, _OTHERS)
@click.pass_context
def command(
    context: click.Context,
    /,
    words: tuple[str, ...],
    recipe: tuple[str, str] | None,
    json_file: str | None,
    html: str | None,
    written: tuple[str, str] | None,
    searches: bool,
    vary: tuple[str, ...],
    study: str | None,
    quiet: bool,
    price_per_gpu_hour: float | None,
    train: str | None,
    **options: Any,
) -> None:
    """Predict a step of reinforcement learning of MODEL: rollout, log-probabilities, update and weight sync.

    Rollouts run on simulated engines with vLLM's or SGLang's scheduling; log-probabilities and updates are composed
    training steps with packed sequences, balanced over ranks.
    """
    from presim.cli import rl_inputs
    from presim.cli.progress import progress
    from presim.cli.serve import deliver
    from presim.planner.space import parse_knobs
    from presim.post_training import rl_text
    from presim.post_training.recipes.write_recipe import check
    from presim.system.files import check_writable
    from presim.verbs.rl import predict_rl

    if written:
        check(written[0])
    for path in (json_file, html, written and written[1]):
        if path is not None and path != "-":
            check_writable(path)
    sources = {name: context.get_parameter_source(name) for name in options}
    explicit = {name for name, source in sources.items() if source is click.core.ParameterSource.COMMANDLINE}
    request, cluster, notes = rl_inputs.request_of(words, recipe, options, explicit)
    with progress(quiet or json_file == "-") as say:
        answer = predict_rl(
            request,
            cluster,
            price_per_gpu_hour=price_per_gpu_hour,
            notes=notes,
            searches=searches,
            vary=parse_knobs(vary, any_name=True),
            study=study,
            writes=written[0] if written else None,
            train=train,
            progress=say,
        )
    if written:
        deliver("".join(f"{setting}\n" for setting in answer.settings).encode(), written[1])
    if html:
        from presim.post_training import rl_page

        rl_page.write(answer, html)
    if json_file:
        deliver(rl_text.encode(answer), json_file)
    if not quiet and json_file != "-":
        rl_text.write(answer)
