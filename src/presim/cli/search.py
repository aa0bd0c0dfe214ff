"""``presim search``: find the best plan for a model, or the best arguments of a command."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from presim.cli.behind import CommandBehind
from presim.cli.numbers import number
from presim.cli.options import cluster_options, engine_options
from presim.cli.output_files import html_option, json_option, quiet_option
from presim.cli.plan_options import DTYPES, PRECISIONS, field_of, knob_options
from presim.cli.progress import progress
from presim.system import interrupts
from presim.units import quantities

_KNOBS = (
    "--seq", "--mbs", "--tp", "--sp", "--pp", "--vpp", "--cp", "--ep", "--schedule", "--dp-style", "--shard",
    "--recompute", "--reshard", "--optimizer", "--activation-budget", "--offload-activations", "--offload-optimizer",
    "--attention", "--clip",
)  # fmt: skip
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SAMPLERS = ("exhaustive", "tpe", "nsga2", "cmaes", "gp", "random", "grid")


def _duration(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if not match or match[2] not in _UNITS or not float(match[1]):
        raise click.BadParameter(f"{text!r} is not a duration: write e.g. 60s, 5m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def _prices(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    from presim.planner.objectives import read_prices

    return None if text is None else read_prices(text)


@click.command("search", cls=CommandBehind)
@click.argument("words", nargs=-1, metavar="[MODEL] [KNOB=V,V…]… [-- COMMAND…]")
@cluster_options
@click.option("--vary", multiple=True, metavar="KNOB=V,V…", help="Values of a knob; first:last doubles. Repeatable.")
@knob_options(("--global-batch", *_KNOBS))
@click.option(
    "--passes",
    metavar="V[,V…]",
    help="Passes over the graph, joined by +: none, fp8-row, int8, sparse24, fuse-norm+fp8-row.",
)
@click.option("--dtype", default="bfloat16", type=DTYPES, show_default=True)
@click.option(
    "--objective",
    multiple=True,
    metavar="NAME",
    help="What to optimise: step_time, tokens_per_s_per_gpu, tokens_per_s, gpu_hours, money, days, energy or "
    "memory_headroom. Several give a Pareto front.",
)
@click.option(
    "--tokens",
    type=number(quantities.TRAINING_TOKENS),
    metavar="N",
    help="Tokens to train on, for days, gpu_hours and money.",
)
@click.option(
    "--price-per-gpu-hour",
    callback=_prices,
    metavar="X|GPU=X,…",
    help="Price per GPU hour: one price, or prices by GPU.",
)
@click.option(
    "--spare", "spare_gib", type=number(quantities.GIB), default=0.0, metavar="GIB", help="Memory to keep free."
)
@click.option("--max-gpus", type=number(quantities.GPUS), metavar="N", help="Largest number of GPUs.")
@click.option("--max-days", type=number(quantities.DAYS), metavar="D", help="Longest training on --tokens, days.")
@click.option(
    "--sampler", type=click.Choice(_SAMPLERS), default="exhaustive", show_default=True, help="How to select points."
)
@click.option("--trials", type=number(quantities.TRIALS), metavar="N", help="Number of points that a sampler proposes.")
@click.option("--seed", type=number(quantities.SEED), default=0, show_default=True, help="Seed of the sampler.")
@click.option(
    "--jobs",
    type=number(quantities.PROCESSES),
    metavar="N",
    help="Worker processes; default: one per CPU (of the Ray cluster).",
)
@click.option("--ray", metavar="ADDRESS", help="Evaluate on a Ray cluster: auto, HOST:PORT or ray://HOST:PORT.")
@click.option("--budget", callback=_duration, metavar="TIME", help="Stop after this time with the best plan so far.")
@click.option(
    "--prune", multiple=True, metavar="RULE", help="Rules that skip plans: lossless (default), none, or names."
)
@click.option(
    "--gap",
    "gap_percent",
    type=number(quantities.PERCENT),
    default=1.0,
    show_default=True,
    metavar="PERCENT",
    help="Leave out plans that are proven to be at most this much faster than the best; 0: only slower ones.",
)
@click.option("--space", metavar="NAME|FILE", help="Knobs and constraints of a framework's command, e.g. megatron.")
@click.option(
    "--confirm",
    type=number(quantities.PLANS),
    default=0,
    metavar="K",
    help="Capture the K best plans and re-rank them.",
)
@click.option(
    "--capture-each",
    is_flag=True,
    help="Capture a COMMAND at each point, also where points follow from captures of others.",
)
@click.option(
    "--framework",
    type=click.Choice(("auto", "megatron", "torchtitan", "hf", "accelerate", "deepspeed")),
    default="auto",
    show_default=True,
    help="Price the best plans from captures of this framework's own trainer. With --confirm: what captures them; "
    "auto: the first that supports a plan.",
)
@click.option(
    "--framework-plans",
    type=number(quantities.PLANS),
    metavar="N",
    help="With --framework: number of plans to price from its captures. Default: 8, or none with --confirm.",
)
@click.option(
    "--precision",
    type=PRECISIONS,
    help="With --framework: numbers of products and weights in its captures. Default: bf16.",
)
@click.option(
    "--framework-args",
    metavar="'OPTION …'",
    help="With --framework: the framework's own options, as of `presim compose`.",
)
@click.option(
    "--matrix",
    multiple=True,
    metavar="GPU:NODES,…",
    help="Find the best plan on each of these clusters (or cluster files), and run it on all; --html writes an SVG.",
)
@click.option("--study", metavar="FILE|URL", help="Store finished trials, and resume from them.")
@engine_options
@json_option
@click.option("--csv", "csv_file", metavar="FILE", help="Write all trials as CSV.")
@html_option
@click.option("--write", "folder", metavar="DIR", help="Write the best plan, or the launch command with its values.")
@quiet_option
def command(words: tuple[str, ...], **options: Any) -> int:
    """Find the best plan for training MODEL, or the best arguments of a COMMAND.

    MODEL is as in `presim compose`: plans for it are composed and simulated. A COMMAND after `--` has placeholders,
    e.g. `torchrun train.py --tp {tp}`; it is captured for each value in `--vary`. With a MODEL and a COMMAND, --confirm
    captures the best plans with the COMMAND.
    """
    from presim.planner.answer import point_files
    from presim.planner.answer.search_table import csv_table, write
    from presim.planner.run_search import run
    from presim.planner.study import encode
    from presim.system.files import check_writable, write_file

    outputs = {name: options.pop(name) for name in ("json_file", "csv_file", "html", "folder", "quiet")}
    for path in (outputs["json_file"], outputs["csv_file"], outputs["html"]):
        if path and path != "-":
            check_writable(path)
    if outputs["folder"]:
        point_files.check(outputs["folder"])
    if matrix := options.pop("matrix"):
        return _matrix(words, matrix, options, outputs)
    request = _request(words, click.get_current_context().obj or [], options)
    with progress(outputs["quiet"], lines=True) as say:
        say("searching")
        answer = run(request, say)
    is_interrupted = interrupts.is_pending()  # then only what a later call overwrites is written
    if outputs["csv_file"]:
        write_file(outputs["csv_file"], csv_table(answer))
    if outputs["html"]:
        from presim.planner.answer.search_page import render

        write_file(outputs["html"], render(answer).encode())
    if outputs["json_file"] == "-":
        sys.stdout.buffer.write(encode(answer))
    elif outputs["json_file"]:
        write_file(outputs["json_file"], encode(answer))
    if not outputs["quiet"] and outputs["json_file"] != "-":
        write(answer)
    if outputs["folder"] and not is_interrupted:
        _write(request, answer, outputs["folder"])
    return _exit_code(answer)


def _matrix(words: tuple[str, ...], matrix: tuple[str, ...], options: dict[str, Any], outputs: dict[str, Any]) -> int:
    """Search on several clusters, and run each plan on all."""
    from presim.errors import ExitCode, InputError
    from presim.evaluation.options import ClusterOptions
    from presim.planner.answer.matrix_page import picture, write
    from presim.planner.matrix import clusters_of, encode, search_matrix
    from presim.system.files import write_file

    models = [word for word in words if "=" not in word]
    unusable = [name for name in ClusterOptions.__dataclass_fields__ if options.get(name) is not None]
    unusable_with_matrix = ("space", "confirm", "study", "framework_plans", "precision", "framework_args")
    unusable += [name for name in unusable_with_matrix if options.get(name)]
    unusable += ["framework"] if options.get("framework") != "auto" else []
    unusable += [name for name in ("csv_file", "folder") if outputs[name]]
    if len(models) != 1 or click.get_current_context().obj or unusable:
        options_said = (name.replace("_file", "").replace("folder", "write").replace("_", "-") for name in unusable)
        names = ", ".join(f"--{name}" for name in options_said)
        raise InputError(
            "--matrix searches plans of one model on the clusters that it names"
            + (f"; leave out {names}" if unusable else ": give one model, and no command")
        )
    settings, fixed = _settings(words, options)
    with progress(outputs["quiet"]) as say:
        answer = search_matrix(models[0], settings, _options(options), fixed, clusters_of(matrix), say)
    if outputs["html"]:
        write_file(outputs["html"], picture(answer).encode())
    if outputs["json_file"] == "-":
        sys.stdout.buffer.write(encode(answer))
    elif outputs["json_file"]:
        write_file(outputs["json_file"], encode(answer))
    if not outputs["quiet"] and outputs["json_file"] != "-":
        write(answer)
    return ExitCode.STANDS if any(answer.plans) else ExitCode.DOES_NOT_FIT


def _write(request: Any, answer: Any, folder: str) -> None:
    """Write the files of the best point, and report each framework on standard error."""
    from presim.planner.answer import point_files

    point_files.write(request, answer, folder)
    launch_files = point_files.launch(request, answer.best_point, folder)
    for line in launch_files.lines() if launch_files is not None else ():
        click.echo(line, err=True)


def _exit_code(answer: Any) -> int:
    from presim.errors import ExitCode

    if answer.best:
        return ExitCode.STANDS
    misfit = any(trial.figures is not None or trial.lacks_bytes is not None for trial in answer.trials)
    return ExitCode.DOES_NOT_FIT if misfit else ExitCode.UNUSABLE


def _request(words: tuple[str, ...], behind: list[str], options: dict[str, Any]) -> Any:
    from presim.errors import InputError
    from presim.planner.of_command import request_for_command
    from presim.planner.of_model import request_for_model

    models = [word for word in words if "=" not in word]
    settings, fixed = _settings(words, options)
    if behind:
        if settings.space:
            return _request_of_space(behind, settings, _options(options), fixed, models)
        if len(models) == 1:
            return request_for_model(models[0], settings, _options(options), fixed, behind)
        return request_for_command(behind, settings, _options(options))
    if settings.space:
        raise InputError("--space needs a command: write it after --, e.g. -- torchrun … pretrain_gpt.py")
    if len(models) != 1:
        raise InputError(
            "name a model, e.g. `presim search llama3-70b --gpu h100-sxm --nodes 64 --seq 8192`, or a command after --"
            if not models
            else f"{len(models)} models are given, {' and '.join(models)}: search one at a time"
        )
    return request_for_model(models[0], settings, _options(options), fixed)


def _settings(words: tuple[str, ...], options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Options of the search, and plan fields with one value; takes both out of ``options``."""
    from presim.planner.search_options import SearchOptions, knob_options

    settings = {name: options.pop(name) for name in SearchOptions.__dataclass_fields__ if name in options}
    fixed, several = knob_options(
        {name: options.pop(name) for name in (*map(field_of, _KNOBS), "passes", "global_batch")}
    )
    settings["vary"] = [*settings.get("vary", ()), *(word for word in words if "=" in word), *several]
    return SearchOptions(**settings), fixed


def _request_of_space(command: list[str], settings: Any, options: Any, fixed: dict[str, Any], models: list[str]) -> Any:
    """Request with a space; the model's sizes and fixed options are facts for its constraints."""
    from presim.errors import InputError
    from presim.planner.of_command import request_for_command
    from presim.planner.spaces.constraint_facts import facts_of
    from presim.planner.spaces.space_request import request_for_space

    if len(models) > 1:
        raise InputError(
            f"{len(models)} models are given, {' and '.join(models)}: give only the one that the command trains"
        )
    if settings.confirm and models:
        return request_for_space(models[0], command, settings, options, fixed)
    facts = {**(facts_of(models[0]) if models else {}), **fixed}
    return request_for_command(command, settings, options, facts)


def _options(options: dict[str, Any]) -> Any:
    from presim.evaluation.options import RunOptions

    return RunOptions(**options)
