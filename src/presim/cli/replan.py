"""``presim replan``: a saved job under another plan."""

from __future__ import annotations

from typing import Any

import click

from presim.cli.numbers import number
from presim.cli.options import Outputs, cluster_options, engine_options, exit_code, output_options
from presim.cli.verb import Verb
from presim.system.interrupts import noted
from presim.units import quantities


@click.command("replan", cls=Verb)
@click.argument("directory", metavar="DIR")
@click.option(
    "--layers",
    type=number(quantities.BLOCKS_OF_MODEL),
    metavar="N",
    help="Layers of the model. Default: as captured.",
)
@click.option(
    "--larger",
    metavar="DIR",
    help="The same job captured with more layers: it confirms how layers are added, and says how the rest grows.",
)
@click.option(
    "--wider",
    metavar="DIR",
    help="The same job captured on more ranks: it says how shards of parameters follow from their number.",
)
@click.option(
    "--pp",
    "pipeline",
    type=number(quantities.DEGREE),
    metavar="N",
    help="Pipeline stages, each with the layers and ranks of a captured one. Default: as captured.",
)
@click.option(
    "--micro-batches",
    type=number(quantities.MICRO_BATCHES),
    metavar="N",
    help="Micro-batches of each step. Default: as captured.",
)
@click.option(
    "--dp",
    "data_parallel",
    type=number(quantities.DEGREE),
    metavar="N",
    help="Number of data-parallel ranks, on as many nodes as they take. Default: as captured.",
)
@cluster_options
@click.option(
    "--rank", type=number(quantities.RANK), metavar="R", help="Captured rank to report on. Default: the lowest."
)
@click.option("--save", "--out", metavar="DIR", help="Save the new job for `presim simulate`.")
@engine_options
@output_options
def command(directory: str, **options: Any) -> int:
    """Simulate the job in DIR with more layers, stages, micro-batches or data-parallel ranks than it was captured with.

    Pipeline schedules and gradient accumulation repeat a cycle of micro-batches. A job that was captured with a few of
    them, about twice as many as it has pipeline stages, answers for any larger number. Layers repeat each other, too: a
    capture of five answers for a deeper model. So do four stages of a pipeline for more. Nothing is captured again.
    """
    from presim.evaluation.options import ReplanOptions
    from presim.verbs.replan import replan_and_evaluate

    outputs = Outputs.pop_from(options)
    outputs.check(directory)
    with noted("nothing is written, because the job was not simulated to its end"):
        evaluation = replan_and_evaluate(directory, ReplanOptions(**options))
    outputs.deliver(evaluation)
    return exit_code(evaluation.result)
