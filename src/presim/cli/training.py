"""``presim training``: project one step to a whole training."""

from __future__ import annotations

import sys
from typing import Any

import click

from presim.cli.numbers import number
from presim.cli.output_files import html_option, json_option, quiet_option
from presim.cli.verb import Verb
from presim.system.interrupts import noted
from presim.units import quantities


@click.command("training", cls=Verb)
@click.argument("job", metavar="JOB")
@click.option(
    "--tokens", type=number(quantities.TRAINING_TOKENS), required=True, metavar="N", help="Token budget, e.g. 15e12."
)
@click.option(
    "--price-per-gpu-hour", type=number(quantities.PRICE), metavar="X", help="Price of a GPU hour, in any currency."
)
@click.option("--price-per-kwh", type=number(quantities.PRICE), metavar="X", help="Price of energy.")
@click.option(
    "--failures",
    default="llama3",
    show_default=True,
    metavar="REPORT",
    help="Published failure rate per GPU: llama3 or rsc-1.",
)
@click.option(
    "--mtbf",
    "mtbf_hours",
    type=number(quantities.HOURS),
    metavar="HOURS",
    help="Hours between failures of the cluster.",
)
@click.option(
    "--checkpoint",
    "checkpoint_s",
    type=number(quantities.POSITIVE_SECONDS),
    metavar="S",
    help="Seconds that one checkpoint blocks.",
)
@click.option(
    "--interval",
    "interval_s",
    type=number(quantities.POSITIVE_SECONDS),
    metavar="S",
    help="Work between checkpoints; default: the best.",
)
@click.option(
    "--restart", "restart_s", type=number(quantities.SECONDS), metavar="S", help="Time from failure to next step."
)
@click.option("--repair", "repair_s", type=number(quantities.SECONDS), metavar="S", help="Time to repair a node.")
@click.option("--spares", type=number(quantities.RANKS), metavar="N", help="Spare nodes; default: unlimited.")
@click.option("--elastic", is_flag=True, help="Continue without data-parallel replicas that lost a node.")
@click.option(
    "--jitter", type=number(quantities.DEVIATION), default=0.0, help="Relative standard deviation of a rank's steps."
)
@click.option(
    "--runs", type=number(quantities.TRAININGS), default=200, show_default=True, help="Trainings to simulate."
)
@click.option("--seed", type=number(quantities.SEED), default=0, show_default=True)
@click.option(
    "--budget", metavar="TIME", help="Refuse --runs whose simulation would take more, e.g. 2h; default: 10min."
)
@json_option
@html_option
@quiet_option
def command(job: str, json_file: str | None, html: str | None, quiet: bool, budget: str | None, **options: Any) -> None:
    """Predict how long training on a token budget takes, and its cost.

    JOB is a folder that `presim run --save` or `presim compose --save` made, or a result that --json wrote. Failures,
    checkpoints, restarts and repairs are simulated; each figure that was not predicted is listed with its source.
    """
    from presim.cli import partial_results
    from presim.report import training as report
    from presim.studies.projection.token_budget import ProjectionRequest, check
    from presim.studies.saved_jobs import project_training
    from presim.system.budgets import budget_of
    from presim.system.files import check_writable, write_file

    for path in (json_file, html):
        if path is not None and path != "-":
            check_writable(path)
    request, limits = ProjectionRequest(**options), budget_of(budget) if budget else None
    check(request)
    with noted("nothing is written, because no training was simulated to its end"):
        projection = project_training(job, request, budget=limits, keeps_finished=True)
    if html and projection.partial:
        partial_results.write_page("training", projection, html)
    elif html:
        report.write_page(projection, html)
    if json_file == "-":
        sys.stdout.buffer.write(report.encode(projection))
    elif json_file:
        write_file(json_file, report.encode(projection))
    if not quiet and json_file != "-":
        if projection.partial:
            partial_results.write("training", projection)
        else:
            report.write(projection)
