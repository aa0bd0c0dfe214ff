"""``presim explain``: what limits a saved job, and what would help."""

from __future__ import annotations

from typing import Any

import click

from presim.cli.behind import CommandBehind
from presim.cli.numbers import number
from presim.cli.options import cluster_options, engine_options
from presim.cli.report_options import Report, report_options
from presim.system.interrupts import noted
from presim.units import quantities


@click.command("explain", cls=CommandBehind)
@click.argument("directory", metavar="DIR [-- COMMAND…]")
@cluster_options
@engine_options
@click.option("--model", metavar="MODEL", help="The model, as for `presim compose`; also tries other plans.")
@click.option("--plan", "plan_file", metavar="FILE", help="TOML file with plan fields that the capture lacks.")
@click.option(
    "--confirm",
    "max_plans",
    type=number(quantities.PLANS),
    default=0,
    metavar="K",
    help="Capture the K best other plans, too.",
)
@click.option("--vary", multiple=True, metavar="KNOB=V,V…", help="Capture the COMMAND with these values. Repeatable.")
@click.option(
    "--framework",
    type=click.Choice(("auto", "torchtitan", "megatron", "deepspeed", "accelerate")),
    default="auto",
    show_default=True,
    help="Framework for --confirm without a COMMAND.",
)
@click.option("--study", metavar="FILE", help="Store finished captures, and resume from them.")
@report_options
def command(directory: str, model: str | None, plan_file: str | None, **options: Any) -> None:
    """Show what limits the job in DIR, which `presim run --save` wrote, and what would help.

    Every candidate is simulated. The list is sorted by gain and shows the options that reproduce each result. With
    --model, plans that differ in one field from the captured plan are simulated, too.

    --confirm and --vary capture candidates on the real program and show that gain beside the composed one. A COMMAND
    behind `--` has placeholders, e.g. `train.py --mbs {mbs}`; without one, --confirm writes the files of a framework.
    """
    from presim.cli.progress import progress
    from presim.evaluation.options import EvaluationOptions
    from presim.report import explanation as report
    from presim.studies.explain.confirm import CaptureOptions
    from presim.studies.saved_jobs import explain_job
    from presim.studies.saved_results.read_result import INTERRUPTED

    delivery = Report.pop_from(options)
    captures = {name: options.pop(name) for name in ("max_plans", "vary", "framework", "study")}
    capture_options = CaptureOptions(command=click.get_current_context().obj or [], **captures)
    with progress(delivery.quiet) as say, noted("nothing is written, because the job itself was not simulated"):
        answer = explain_job(
            directory, EvaluationOptions(**options), model=model, plan_file=plan_file, captures=capture_options,
            progress=say, keeps_finished=True,
        )  # fmt: skip
    delivery.deliver("explanation", answer, report.encode(answer), INTERRUPTED if answer.partial else "")
