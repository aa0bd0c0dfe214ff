"""``presim compose``: predict a training job from a model and a plan, without a program."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from presim.cli import completion
from presim.cli.numbers import number
from presim.cli.options import Outputs, cluster_options, engine_options, exit_code, output_options
from presim.cli.plan_options import DTYPES, PRECISIONS, switch_options, value_options
from presim.cli.verb import Verb
from presim.system.interrupts import noted
from presim.units import quantities

if TYPE_CHECKING:
    from presim.errors import ExitCode

_DTYPE = "bfloat16"  # of composed graphs
_NOT_PREDICTED = "nothing is written, because the plan was not simulated to its end"


@click.command("compose", cls=Verb)
@click.argument("model", required=False, shell_complete=completion.trained_models)
@cluster_options
@click.option("--plan", "plan_file", metavar="FILE", help="TOML file with the plan; command-line options override it.")
@value_options
@click.option(
    "--pass",
    "passes",
    multiple=True,
    metavar="PASS",
    help="Change the graph: fuse-norm, fuse-rotary, fuse-activation, fuse-cross-entropy, fuse-pointwise, "
    "recompute-selective, early-collectives, split-collectives-2, split-collectives-4, fp8-tensor, fp8-row, fp8-block, "
    "mxfp8, nvfp4, int8, sparse24, one of a package, or package.module:function; repeatable, in order.",
)
@click.option("--recompute-blocks", type=number(quantities.BLOCKS), help="Recompute only the first N blocks.")
@click.option("--cuda-graphs", is_flag=True, default=None, help="Use CUDA graphs: no CPU overhead between kernels.")
@switch_options
@click.option(
    "--dtype",
    type=DTYPES,
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
    type=PRECISIONS,
    help="Of a framework's program: numbers of products and weights. Default: bf16.",
)
@click.option(
    "--framework-args",
    metavar="'OPTION …'",
    help="With --framework: the framework's own options: fields of Megatron-Bridge's configuration, as "
    "ddp.average_in_collective=false, or a YAML file of it; options of torchtitan's trainer or `accelerate launch`; "
    "fields of DeepSpeed's configuration, as zero_optimization.stage=2, or its JSON file.",
)
@click.option(
    "--from",
    "launch",
    metavar="'FILE …'",
    help="A launch script or configuration of Megatron-LM, torchtitan, accelerate, DeepSpeed, axolotl, LLaMA-Factory, "
    "TRL or MLPerf, or the command itself, with its arguments and NAME=VALUE before it, as in a shell: model, plan, "
    "precision and cluster are read, nothing is run. Options override them.",
)
@click.option("--like", metavar="DIR", help="Compose the job of a saved capture on its cluster, and compare the two.")
@click.option("--write", "folder", metavar="DIR", help="Write launch files for each framework that supports the plan.")
@click.option("--save", "--out", metavar="DIR", help="Save the composed trace for `presim simulate`.")
@engine_options
@output_options
def command(
    model: str | None,
    plan_file: str | None,
    dtype: str | None,
    like: str | None,
    save: str | None,
    folder: str | None,
    framework: str,
    precision: str | None,
    framework_args: str | None,
    launch: str | None,
    **options: Any,
) -> int:
    """Predict the training of MODEL from a parallelism plan, without running a program.

    MODEL is a graph that `presim graph` wrote, or anything that `presim graph` accepts. The plan comes from options, or
    from a TOML file with the fields of `presim.composition.plan.Plan`. With --like, missing fields come from the
    capture. With --like, --json - prints the comparison.

    A framework's trainer runs on the emulated GPU with a few micro-batches of the plan, one rank of each kind, and the
    rest of the step is repeated from them. The capture is kept for the next call.

    With --from, MODEL may be left out where the launch names it or has its sizes.
    """
    from presim.composition.plan import Plan, named_fields, read_plan
    from presim.evaluation.options import EvaluationOptions

    outputs = Outputs.pop_from(options)
    outputs.check()
    fields = [field.name for field in _fields(Plan)]
    plan_fields = {name: options.pop(name) for name in fields if name in options}
    plan_fields = {name: value for name, value in plan_fields.items() if value is not None and value != ()}
    program: dict[str, Any] = {"framework": framework, "precision": precision, "dtype": dtype}
    program["overrides"] = _words(framework_args)
    if launch is not None:
        _check_launch(like, plan_file, dtype)
        model = _read_launch(launch, model, plan_fields, options, program)
        for line in program["notes"] if not outputs.quiet else ():
            click.echo(line, err=True)
    if model is None:
        raise click.MissingParameter(param_hint="'MODEL'", param_type="argument")
    evaluated = EvaluationOptions(**options)
    if folder is not None:
        _check_write(folder, like)
    if like is not None:
        _check_like(framework, {"--precision": precision, "--framework-args": framework_args})
        return _deliver_comparison(outputs, model, like, plan_fields, evaluated, plan_file, dtype or _DTYPE, save)
    plan, set_fields = read_plan(plan_file, plan_fields), named_fields(plan_file, plan_fields).keys()
    code = _deliver_plan(outputs, model, plan, set_fields, evaluated, program, save)
    if folder is not None:
        _write(model, plan, evaluated, folder)
    return code


def _read_launch(
    launch: str, model: str | None, plan_fields: dict[str, Any], options: dict[str, Any], program: dict[str, Any]
) -> str:
    """Add what a launch script says to plan, cluster and program, where no option does; returns the model."""
    from presim.composition.launch_scripts.launched_plan import read_launch
    from presim.errors import InputError

    launched = read_launch(launch, model, plan_fields.keys())
    if program["framework"] not in ("auto", launched.framework):
        raise InputError(
            f"--from reads a launch of {launched.framework}, which --framework {program['framework']} contradicts: "
            "leave one out"
        )
    if not any(options.get(name) for name in ("nodes", "world_size", "cluster")):
        options["world_size"] = launched.world_size
        if launched.world_size is None:
            options["nodes"] = launched.nodes
            options["gpus_per_node"] = options["gpus_per_node"] or launched.gpus_per_node
    for name, value in launched.fields.items():
        plan_fields.setdefault(name, value)
    if launched.micro_batches is not None or launched.copies > 1:
        for name, value in launched.fields_on(_world_size(options)).items():
            plan_fields.setdefault(name, value)
    program["framework"] = launched.framework
    program["precision"] = program["precision"] or launched.precision
    program["overrides"] = [*launched.overrides, *program["overrides"]]
    program["notes"] = launched.notes
    return launched.model


def _world_size(options: dict[str, Any]) -> int:
    from presim.evaluation.options import EvaluationOptions
    from presim.verbs.target import chosen_cluster

    return chosen_cluster(EvaluationOptions(**options)).world_size


def _check_launch(like: str | None, plan_file: str | None, dtype: str | None) -> None:
    from presim.errors import InputError

    contradictions = {"--like": like, "--plan": plan_file, "--dtype": dtype}
    named = [name for name, value in contradictions.items() if value is not None]
    if named:
        raise InputError(f"--from reads the plan of a launch, which {named[0]} contradicts: leave one out")


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

    with noted(_NOT_PREDICTED):
        evaluation, agreement = compose_like(
            model, like, plan_fields, options, plan_file=plan_file, dtype=dtype, save=save
        )
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

    with progress(outputs.quiet, lines=True) as say, noted(_NOT_PREDICTED):
        evaluation = predict_plan(
            model,
            plan,
            named_fields,
            options,
            **program,
            simulates_all=outputs.shows_time_lines,
            save=save,
            progress=say,
        )
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
