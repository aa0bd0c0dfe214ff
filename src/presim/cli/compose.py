"""``presim compose``: predict a training job from a model and a plan, without a program."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from presim.cli import completion
from presim.cli.numbers import number
from presim.cli.options import Outputs, cluster_options, engine_options, exit_code, output_options
from presim.cli.verb import Verb
from presim.units import quantities

if TYPE_CHECKING:
    from presim.errors import ExitCode

_DTYPE = "bfloat16"  # of composed graphs


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
    """A file with the passes of each rank."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """The rows of the file."""
        from pathlib import Path

        from presim.composition.own_schedule import read_passes

        return value if isinstance(value, tuple) else read_passes(Path(value))


_PLAN = (  # option, field, type, help
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
        "File with a pipeline schedule of your own: a row of passes for each rank, such as 0F0,0F1,0B0,0B1.",
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


def _plan_options(function: Any) -> Any:
    for option, field, kind, text in reversed(_PLAN):
        function = click.option(option, field, type=kind, help=text)(function)
    return function


@click.command("compose", cls=Verb)
@click.argument("model", shell_complete=completion.trained_models)
@cluster_options
@click.option("--plan", "plan_file", metavar="FILE", help="TOML file with the plan; command-line options override it.")
@_plan_options
@click.option(
    "--pass",
    "passes",
    multiple=True,
    metavar="PASS",
    help="Change the graph: fuse-norm, fuse-rotary, fuse-activation, fuse-cross-entropy, fuse-pointwise, "
    "recompute-selective, fp8-tensor, fp8-row, fp8-block, mxfp8, nvfp4, int8, sparse24, one of a package, or "
    "package.module:function; repeatable, in order.",
)
@click.option("--recompute-blocks", type=number(quantities.BLOCKS), help="Recompute only the first N blocks.")
@click.option("--cuda-graphs", is_flag=True, default=None, help="Use CUDA graphs: no CPU overhead between kernels.")
@click.option("--reshard/--no-reshard", "reshard", default=None, help="FSDP2: free parameters after a block's forward.")
@click.option("--sp/--no-sp", "sequence_parallel", default=None, help="Sequence parallelism between --tp's layers.")
@click.option(
    "--pad-experts/--no-pad-experts",
    "pad_experts",
    default=None,
    help="Every expert computes as many tokens as --expert-capacity.",
)
@click.option(
    "--vocabulary/--no-vocabulary",
    "vocabulary_parallel",
    default=None,
    help="Shard embedding, output layer and loss over the vocabulary; implied by --sp.",
)
@click.option("--overlap/--no-overlap", "overlap", default=None, help="Overlap communication and compute (ddp, zero1).")
@click.option("--clip/--no-clip", "clip", default=None, help="Clip gradients by norm.")
@click.option(
    "--dtype",
    type=click.Choice(("bfloat16", "float16", "float32")),
    help="Of eager layers. Default: bfloat16. A framework's program has --precision.",
)
@click.option(
    "--framework",
    type=click.Choice(("auto", "eager", "megatron", "torchtitan", "hf", "deepspeed")),
    default="auto",
    show_default=True,
    help="Capture this framework's own trainer by the plan, or compose the eager layers of MODEL's graph. auto: "
    "megatron for two of --tp, --pp, --ep together or --dp-style zero1, else eager.",
)
@click.option(
    "--precision",
    type=click.Choice(("bf16", "fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4")),
    help="Of a framework's program: numbers of products and weights. Default: bf16.",
)
@click.option(
    "--framework-args",
    metavar="'OPTION …'",
    help="With --framework: the framework's own options: fields of Megatron-Bridge's configuration, as "
    "ddp.average_in_collective=false, or a YAML file of it; options of torchtitan's trainer or `accelerate launch`; "
    "fields of DeepSpeed's configuration, as zero_optimization.stage=2, or its JSON file.",
)
@click.option("--like", metavar="DIR", help="Compose the job of a saved capture on its cluster, and compare the two.")
@click.option("--write", "folder", metavar="DIR", help="Write launch files for each framework that supports the plan.")
@click.option("--save", metavar="DIR", help="Save the composed trace for `presim simulate`.")
@engine_options
@output_options
def command(
    model: str,
    plan_file: str | None,
    dtype: str | None,
    like: str | None,
    save: str | None,
    folder: str | None,
    framework: str,
    precision: str | None,
    framework_args: str | None,
    **options: Any,
) -> int:
    """Predict the training of MODEL from a parallelism plan, without running a program.

    MODEL is a graph that `presim graph` wrote, or anything that `presim graph` accepts. The plan comes from options, or
    from a TOML file with the fields of `presim.composition.plan.Plan`. With --like, missing fields come from the
    capture. With --like, --json - prints the comparison.

    A framework's trainer runs on the emulated GPU with a few micro-batches of the plan, one rank of each kind, and the
    rest of the step is repeated from them. The capture is kept for the next call.
    """
    from presim.composition.plan import Plan, named_fields, read_plan
    from presim.evaluation.options import EvaluationOptions

    outputs = Outputs.pop_from(options)
    outputs.check()
    fields = [field.name for field in _fields(Plan)]
    plan_fields = {name: options.pop(name) for name in fields if name in options}
    plan_fields = {name: value for name, value in plan_fields.items() if value is not None and value != ()}
    evaluated = EvaluationOptions(**options)
    if folder is not None:
        _check_write(folder, like)
    if like is not None:
        _check_like(framework, {"--precision": precision, "--framework-args": framework_args})
        return _deliver_comparison(outputs, model, like, plan_fields, evaluated, plan_file, dtype or _DTYPE, save)
    plan, set_fields = read_plan(plan_file, plan_fields), named_fields(plan_file, plan_fields).keys()
    program = {"framework": framework, "precision": precision, "overrides": _words(framework_args), "dtype": dtype}
    code = _deliver_plan(outputs, model, plan, set_fields, evaluated, program, save)
    if folder is not None:
        _write(model, plan, evaluated, folder)
    return code


def _deliver_comparison(
    outputs: Outputs,
    model: str,
    like: str,
    plan_fields: dict[str, Any],
    options: Any,
    plan_file: str | None,
    dtype: str,
    save: str | None,
) -> ExitCode:
    """Compose what a capture ran, report how they agree, and return the code of the composed job."""
    from presim.report import agreement as report
    from presim.verbs.compose import compose_like

    evaluation, agreement = compose_like(model, like, plan_fields, options, plan_file=plan_file, dtype=dtype, save=save)
    if outputs.json_file == "-":
        sys.stdout.buffer.write(report.encode(agreement))
        return exit_code(evaluation.result)
    outputs.deliver(evaluation, report=False)
    if not outputs.quiet:
        report.write(agreement)
    return exit_code(evaluation.result)


def _check_like(framework: str, options: dict[str, str | None]) -> None:
    from presim.errors import InputError

    named = [name for name, value in options.items() if value is not None]
    if framework not in ("auto", "eager"):
        named.append("--framework")
    if named:
        raise InputError(f"--like composes eager layers, and {named[0]} is of a framework's program: leave one out")


def _words(framework_args: str | None) -> list[str]:
    import shlex

    from presim.errors import InputError

    try:
        return shlex.split(framework_args or "")
    except ValueError as error:
        raise InputError(f"--framework-args {framework_args!r} cannot be split into words: {error}") from error


def _deliver_plan(
    outputs: Outputs,
    model: str,
    plan: Any,
    named_fields: Collection[str],
    options: Any,
    program: dict[str, Any],
    save: str | None,
) -> ExitCode:
    """Predict the plan, report, and return its code. ``program``: who runs it, as arguments of `predict_plan`."""
    from presim.cli.progress import progress
    from presim.verbs.compose_plan import predict_plan

    with progress(outputs.quiet, lines=True) as say:
        evaluation = predict_plan(model, plan, named_fields, options, **program, save=save, progress=say)
    outputs.deliver(evaluation)
    return exit_code(evaluation.result)


def _check_write(folder: str, like: str | None) -> None:
    from pathlib import Path

    from presim.errors import InputError
    from presim.system.files import check_folder

    if like is not None:
        raise InputError("--write writes a plan, but --like takes the plan from a capture: leave out one of the two")
    check_folder(Path(folder))


def _write(model: str, plan: Any, options: Any, folder: str) -> None:
    """Write launch files, and report each framework on standard error."""
    from pathlib import Path

    from presim.composition.launch_files.write_files import write_for_model

    names = ("gpu", "node", "fabric", "nodes", "gpus_per_node", "world_size", "cluster")
    cluster = {name: getattr(options, name) for name in names}
    for line in write_for_model(model, plan, cluster, Path(folder)).lines():
        click.echo(line, err=True)


def _fields(plan: Any) -> Any:
    import msgspec

    return msgspec.structs.fields(plan)
