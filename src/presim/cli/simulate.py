"""``presim simulate``: price and simulate a saved trace."""

from __future__ import annotations

from typing import Any

import click

from presim.cli.numbers import number
from presim.cli.options import Outputs, cluster_options, engine_options, exit_code, output_options
from presim.cli.verb import Verb
from presim.system.interrupts import noted
from presim.units import quantities


@click.command("simulate", cls=Verb)
@click.argument("directory", metavar="DIR")
@cluster_options
@click.option(
    "--rank", type=number(quantities.RANK), metavar="R", help="Captured rank to report on. Default: the lowest."
)
@engine_options
@click.option("--scale", metavar="dp=N", help="Re-scale to N data-parallel ranks, on as many nodes as they take.")
@click.option(
    "--wider",
    metavar="DIR",
    help="The same job captured on more ranks: it says how shards of parameters follow from their number. Default: the "
    "one that `presim run --wider` kept, if any.",
)
@click.option(
    "--fail",
    multiple=True,
    metavar="LINK[=SHARE]",
    help="What if a link (leaf0-spine0), NIC (node3.nic0) or switch of the network failed, or lost SHARE of its "
    "bandwidth; repeatable.",
)
@click.option(
    "--ranks-simulated",
    type=click.Choice(["auto", "all"]),
    default="auto",
    show_default=True,
    help="auto: the ranks that differ; all: every rank of the world by itself.",
)
@click.option(
    "--jitter",
    multiple=True,
    metavar="NAME=X",
    help="Let the times of hosts, gpus or links vary between ranks by a relative standard deviation, e.g. "
    "hosts=0.02,links=0.05; simulates every rank. Repeatable.",
)
@click.option(
    "--jitter-draws",
    type=number(quantities.DRAWS),
    default=8,
    metavar="N",
    show_default=True,
    help="Number of random draws of --jitter.",
)
@click.option(
    "--seed", type=number(quantities.SEED), default=0, metavar="N", show_default=True, help="Seed of the draws."
)
@click.option(
    "--budget",
    default="",
    metavar="TIME",
    help="Refuse --jitter-draws whose simulation would take more, e.g. 2h; default: 10min.",
)
@click.option(
    "--events",
    metavar="FILE",
    help="TOML file of slow GPUs, hot nodes and failing links over a run of steps: how long the run takes.",
)
@output_options
def command(directory: str, **options: Any) -> int:
    """Simulate the trace in DIR, which `presim run --save` or `presim compose --save` wrote.

    Without options the cluster is the one of the capture. Another GPU, or the same number of GPUs on other nodes, needs
    no new capture. Another number of GPUs needs none if data-parallel ranks share gradients only. If they hold shards,
    a second capture on more ranks says how these follow from their number.
    """
    from presim.evaluation.options import SimulateOptions
    from presim.verbs.simulate import evaluate_saved

    outputs = Outputs.pop_from(options)
    outputs.check(directory)
    with noted("nothing is written, because the job was not simulated to its end"):
        evaluation = evaluate_saved(directory, SimulateOptions(**options))
    outputs.deliver(evaluation)
    return exit_code(evaluation.result)
