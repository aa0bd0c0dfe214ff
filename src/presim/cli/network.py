"""``presim network``: collectives on a network, link by link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from presim.network.topology import Topology


@click.command("network")
@click.argument("file", metavar="FILE")
@click.option("--collective", "kind", metavar="KIND", help="Collective: all_reduce, all_to_all, send, …")
@click.option(
    "--bytes",
    "size",
    default="1GiB",
    metavar="SIZE",
    show_default=True,
    help="Size as in nccl-tests, e.g. 64MiB, 1GB.",
)
@click.option("--ranks", metavar="RANKS", help="Ranks that take part, e.g. 0-63 or 0,8,16; default: all.")
@click.option(
    "--together", "is_simultaneous", is_flag=True, help="All groups of the same kind exchange at the same time."
)
@click.option(
    "--resolution",
    type=click.Choice(["link", "flow"]),
    default="flow",
    show_default=True,
    help="flow: max-min fair flows over time; link: transfer time of all traffic on the busiest link.",
)
@click.option(
    "--budget",
    metavar="TIME,MEMORY",
    help="Refuse a collective whose simulation would take more, e.g. 2h,64GiB; default: 10min,8GiB.",
)
@click.option("--plot", metavar="FILE", help="Draw the network as an SVG.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(file: str, as_json: bool, plot: str | None, **query: Any) -> None:
    """Show the network that FILE describes, or the time of a collective on it and its bottleneck links.

    FILE is a cluster's TOML file with a [network] table, or a topology in the format of ASTRA-sim (.yml), SimAI, NCCL
    (.xml) or `nvidia-smi topo -m`.
    """
    from presim.files import check_writable, write_file
    from presim.network import answer
    from presim.network.open import open_network

    if plot:
        check_writable(plot)
    topology = open_network(file)
    content = answer.shape(topology)
    if query["kind"] is not None:
        outcome, groups = _run(topology, **query)
        content = answer.answer(topology, outcome, groups, query["kind"])
    if plot:
        from presim.network.plot import svg

        write_file(plot, svg(topology).encode())
    click.echo(answer.encode(content) if as_json else answer.text(content))


def _run(
    topology: Topology,
    kind: str,
    size: str,
    ranks: str | None,
    is_simultaneous: bool,
    resolution: Any,
    budget: str | None,
) -> Any:
    from presim.budgets import budget_of
    from presim.errors import InputError
    from presim.network import work
    from presim.network.exchange import Exchange, run
    from presim.network.open import bytes_of, ranks_of
    from presim.trace.grids import sisters

    participants = ranks_of(ranks) if ranks else tuple(range(topology.gpus))
    if len(participants) < 2:
        raise InputError(f"{len(participants)} rank has no one to communicate with: give at least two with --ranks")
    groups = sisters(participants, topology.gpus) if is_simultaneous else [participants]
    exchanges = [Exchange(kind, bytes_of(size), group) for group in groups]
    work.check(topology, exchanges, resolution, budget_of(budget) if budget else None)
    return run(topology, exchanges, resolution), groups
