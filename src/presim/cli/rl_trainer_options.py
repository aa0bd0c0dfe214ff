"""Options of ``presim rl`` about training: its plan, its micro-batches, and whose code trains."""

from __future__ import annotations

import click

from presim.cli.numbers import number
from presim.cli.plan_options import value_option
from presim.units import quantities

TRAINER = (
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
