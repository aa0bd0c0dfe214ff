"""``presim import``: profiles and execution traces of real runs as jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from presim.cli.numbers import number
from presim.cli.options import Outputs, cluster_options, engine_options, exit_code, output_options
from presim.cli.verb import Verb
from presim.units import quantities


@click.command("import", cls=Verb)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--out", required=True, metavar="DIR", help="Folder for the job, for `presim simulate` and others.")
@click.option(
    "--step",
    type=number(quantities.STEPS),
    metavar="N",
    help="Profiled step to import; default: all consecutive steps.",
)
@click.option(
    "--missing",
    type=click.Choice(("refuse", "same")),
    default="refuse",
    show_default=True,
    help="Ranks without a file: refuse, or assume that they behave like the others.",
)
@click.option(
    "--from",
    "kind",
    metavar="SOURCE",
    help="Kind of file: kineto, nsys, rocpd, chakra, or a plug-in's. Default: detected.",
)
@cluster_options
@engine_options
@output_options
def command(files: tuple[Path, ...], out: str, kind: str | None, **options: Any) -> int:
    """Import the FILEs of a recorded run as a job, one file for each rank.

    A profile of PyTorch's profiler (Chrome trace, .json or .json.gz) becomes a job of its steps. Cluster options name
    the hardware that it was recorded on, where the file does not say. Then simulate the job on other hardware:
    `presim simulate DIR --gpu b200`.
    """
    from presim.evaluation.options import EvaluationOptions
    from presim.verbs.import_job import import_and_evaluate

    outputs = Outputs.pop_from(options)
    outputs.check()
    step, missing = options.pop("step"), options.pop("missing")
    evaluation = import_and_evaluate(files, EvaluationOptions(**options), out, kind=kind, step=step, missing=missing)
    outputs.deliver(evaluation)
    return exit_code(evaluation.result)
