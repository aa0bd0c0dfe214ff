"""The options of a training plan, each declared once: `compose` takes a value, `search` several, `rl` some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from presim.cli.numbers import number
from presim.units import quantities

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Blocks(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.2 on
    """Comma-separated numbers."""

    name = "N,N,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers."""
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of comma-separated numbers such as 7,8,8,7", param, ctx)


class _Passes(click.ParamType):  # type: ignore[type-arg]  # generic only from click 8.2 on
    """A file with the passes of each rank, or what makes them."""

    name = "FILE|MODULE:FUNCTION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The rows of the file, or the name of the function."""
        from presim.composition.schedule_source import read_passes

        return value if isinstance(value, tuple) else read_passes(value)


VALUES: tuple[tuple[str, str, Any, str], ...] = (  # option, field, type, help
    ("--seq", "sequence", number(quantities.SEQUENCE), "Sequence length: tokens per sample."),
    ("--mbs", "micro_batch", number(quantities.BATCH), "Micro-batch size: samples per forward pass on one rank."),
    ("--tp", "tensor", number(quantities.DEGREE), "Tensor-parallel degree."),
    ("--cp", "context", number(quantities.DEGREE), "Context-parallel degree: each rank has a part of every sequence."),
    (
        "--cp-style",
        "context_style",
        click.Choice(("all-gather", "ulysses", "ring")),
        "How attention gets the keys and values of other context-parallel ranks.",
    ),
    (
        "--ep",
        "expert",
        number(quantities.DEGREE),
        "Expert-parallel degree: consecutive ranks share each layer's experts.",
    ),
    (
        "--expert-exchange",
        "expert_exchange",
        click.Choice(("all-to-all", "all-gather", "deepep")),
        "With --ep: how tokens reach their experts.",
    ),
    (
        "--routing",
        "routing",
        str,
        "With --ep: experts that tokens choose: balanced, uniform, zipf:S or file:PATH, as `presim run --values`.",
    ),
    (
        "--expert-capacity",
        "expert_capacity",
        number(quantities.CAPACITY),
        "With --ep: tokens that an expert takes, relative to an even share; others drop. Default: all.",
    ),
    ("--pp", "pipeline", number(quantities.DEGREE), "Pipeline-parallel degree."),
    ("--vpp", "virtual", number(quantities.DEGREE), "Virtual pipeline stages per rank (interleaved)."),
    (
        "--schedule",
        "schedule",
        click.Choice(("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe", "dualpipev")),
        "Pipeline schedule. Default: 1f1b, or interleaved with --vpp.",
    ),
    (
        "--schedule-file",
        "rank_passes",
        _Passes(),
        "Pipeline schedule of your own: a file with a row of passes for each rank, such as 0F0,0F1,0B0,0B1, or a "
        "function that makes the rows.",
    ),
    ("--stages", "stages", _Blocks(), "Repeated blocks per stage, e.g. 7,8,8,7. Default: as equal as possible."),
    (
        "--dp-style",
        "data_style",
        click.Choice(("fsdp2", "hsdp", "ddp", "zero1")),
        "Data-parallel style; zero1: Megatron's distributed optimizer.",
    ),
    ("--shard", "shard", number(quantities.GPUS), "With hsdp: number of consecutive ranks that shard parameters."),
    ("--global-batch", "global_batch", number(quantities.BATCH), "Samples per step over all ranks."),
    ("--recompute", "recompute", click.Choice(("none", "full")), "Recompute the activations of blocks."),
    (
        "--activation-budget",
        "activation_budget",
        number(quantities.SHARE),
        "Share of a block's activations to keep; the cheapest to recompute are dropped.",
    ),
    (
        "--optimizer",
        "optimizer",
        click.Choice(("none", "adamw", "adamw-bf16", "adamw-8bit", "sgd", "momentum")),
        "Optimizer; adamw-bf16 and adamw-8bit store AdamW's states in bf16 or 8 bits.",
    ),
    (
        "--offload-activations",
        "offload_activations",
        number(quantities.BLOCKS_OF_MODEL),
        "The first N blocks of each rank keep activations in host memory.",
    ),
    (
        "--offload-optimizer",
        "offload_optimizer",
        click.Choice(("none", "cpu", "states")),
        "Optimizer states in host memory: the CPU updates, or states are streamed to the GPU.",
    ),
    ("--attention", "attention", click.Choice(("auto", "cudnn", "flash", "flex")), "Fused attention backend."),
)

SWITCHES = (  # option, field, help
    ("--reshard", "reshard", "Free parameters after a block's forward (FSDP2)."),
    ("--sp", "sequence_parallel", "Sequence parallelism between --tp's layers."),
    ("--pad-experts", "pad_experts", "Every expert computes as many tokens as --expert-capacity."),
    (
        "--vocabulary",
        "vocabulary_parallel",
        "Shard embedding, output layer and loss over the vocabulary; implied by --sp.",
    ),
    ("--overlap", "overlap", "Overlap communication and compute (ddp, zero1)."),
    (
        "--side-by-side",
        "side_by_side",
        "With dualpipe, dualpipev: forward passes run beside backward passes, each during the other's communication.",
    ),
    ("--clip", "clip", "Clip gradients by norm."),
)
DTYPES = click.Choice(("bfloat16", "float16", "float32"))
PRECISIONS = click.Choice(("bf16", "fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4", "mxfp4"))


def value_options(function: Any) -> Any:
    """A value for each field of a plan."""
    for flag, field, kind, text in reversed(VALUES):
        function = click.option(flag, field, type=kind, help=text)(function)
    return function


def value_option(flag: str, **settings: Any) -> Any:
    """One of them, named as its flag, with further settings of click's, which precede those declared."""
    kind, text = next((kind, text) for name, _, kind, text in VALUES if name == flag)
    return click.option(flag, **{"type": kind, "help": text, **settings})


def switch_options(function: Any) -> Any:
    """Each switch of a plan with its opposite; neither: the plan's own default."""
    for flag, field, text in reversed(SWITCHES):
        function = click.option(f"{flag}/--no-{flag[2:]}", field, default=None, help=text)(function)
    return function


def knob_options(flags: tuple[str, ...]) -> Callable[[_Function], _Function]:
    """Options that take several values of a field, separated by commas."""
    texts = {flag: (field, text + _values(getattr(kind, "choices", ()))) for flag, field, kind, text in VALUES}
    texts |= {flag: (field, text + _values(("true", "false"))) for flag, field, text in SWITCHES}

    def add(function: _Function) -> _Function:
        for flag in reversed(flags):
            field, text = texts[flag]
            function = click.option(flag, field, metavar="V[,V…]", help=text)(function)
        return function

    return add


def _values(words: Sequence[str]) -> str:
    return f" Values: {', '.join(words)}." if words else ""


def field_of(flag: str) -> str:
    """The plan's field of an option."""
    return next(field for name, field, *_ in (*VALUES, *SWITCHES) if name == flag)
