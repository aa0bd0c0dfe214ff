"""``presim network``: collectives on a network, link by link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from presim.cli.options import cluster_options
from presim.cli.report_options import Report, report_options
from presim.cli.verb import VerbGroup

if TYPE_CHECKING:
    from presim.hardware import Cluster
    from presim.hardware.network.topology import Topology


@click.group("network", cls=VerbGroup, default="show")
def network() -> None:
    """Show a network, the time of a collective on it, or the algorithms that NCCL chooses.

    `presim network FILE` is short for `presim network show`.
    """


command = network


@network.command("show")
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
@click.option("--plot", metavar="FILE", help="Draw the network as an SVG, with the collective's loads if there is one.")
@click.option(
    "--export",
    nargs=2,
    type=(click.Choice(["ns3", "simai", "htsim"]), str),
    metavar="TOOL FILE",
    help="Write the topology in the form of ns3, simai or htsim.",
)
@report_options
def show_(file: str, plot: str | None, export: tuple[str, str] | None, **query: Any) -> None:
    """Show the network that FILE describes, or the time of a collective on it and its bottleneck links.

    FILE is a cluster's TOML file with a [network] table, or a topology in the format of ASTRA-sim (.yml), ns-3, SimAI,
    htsim (.topo), NCCL (.xml) or `nvidia-smi topo -m`.
    """
    import msgspec

    from presim.hardware.network import network_answer
    from presim.hardware.network.open import exported, open_network, unused_note
    from presim.system.files import check_apart, check_writable, write_file

    report = Report.pop_from(query)
    for output in (plot, *(export or ())[1:]):
        if output:
            check_writable(output)
            check_apart(output, [file])
    topology = open_network(file)
    exported_text = exported(file, export[0]) if export else ""
    content = network_answer.shape(topology)
    loads: list[float] = []
    if query["kind"] is not None:
        outcome, exchanges = _run(topology, **query)
        groups = [exchange.ranks for exchange in exchanges]
        content = network_answer.answer(topology, outcome, groups, query["kind"])
        content = network_answer.with_relief(content, topology, outcome)
        loads = outcome.shared.utilisation(topology).tolist() if outcome.shared is not None else []
    content = msgspec.structs.replace(content, note=unused_note(file))
    if plot:
        from presim.hardware.network.topology_plot import MAX_VERTICES, svg

        write_file(plot, svg(topology, loads).encode())
        if (vertex_count := len(topology.names)) > MAX_VERTICES:
            click.echo(f"{plot} draws the first {MAX_VERTICES:,} of {vertex_count:,} GPUs and switches", err=True)
    if export:
        write_file(export[1], exported_text.encode())
    report.deliver("network", content, network_answer.encode(content))


@network.command("explain")
@cluster_options
@click.option(
    "--collective",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Collective: all_reduce, all_gather, reduce_scatter, broadcast, reduce. Repeatable; default: the first three.",
)
@click.option("--ranks", metavar="RANKS", help="Ranks of the group, e.g. 0-63 or 0,8,16; default: all.")
@click.option(
    "--bytes", "size", metavar="SIZE", help="One size: every algorithm and protocol with NCCL's own estimate."
)
@click.option("--nccl-version", metavar="X.Y", help="NCCL's version. Default: that of the cluster's file, else 2.27.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A variable of NCCL. Repeatable.")
@report_options
def explain_(
    kinds: tuple[str, ...],
    ranks: str | None,
    size: str | None,
    nccl_version: str | None,
    settings: tuple[str, ...],
    **names: Any,
) -> None:
    """Print which algorithm, protocol and channels NCCL chooses by size, with presim's prices.

    The choice follows NCCL's published tables of the version. Variables come from the cluster's file and --set.
    """
    import msgspec

    from presim.cost.collectives.nccl_rules import rules
    from presim.hardware import choose_cluster
    from presim.hardware.network.open import bytes_of, ranks_of
    from presim.report import line_report

    report = Report.pop_from(names)
    cluster = choose_cluster(**names)
    if nccl_version:
        rules(nccl_version)
        collectives = {**cluster.collectives, "nccl_version": nccl_version}
        cluster = msgspec.structs.replace(cluster, collectives=collectives)
    environment = _variables(settings)
    group = ranks_of(ranks) if ranks else tuple(range(cluster.world_size))
    _check_group(group, cluster.world_size)
    size_bytes = bytes_of(size) if size else 0
    lines, figures = _choices(kinds, size_bytes, size or "", group, cluster, environment)
    content = line_report.line_report("network explain", lines, {"gpus": len(group), **figures})
    report.deliver("lines", content, line_report.encode(content))


def _choices(
    kinds: tuple[str, ...],
    size_bytes: int,
    size: str,
    group: tuple[int, ...],
    cluster: Cluster,
    environment: dict[str, str],
) -> tuple[list[str], dict[str, Any]]:
    """The lines and figures of each kind of collective; ``size_bytes``: 0: of all sizes."""
    from presim.cost.collectives import explained

    lines: list[str] = []
    figures: dict[str, Any] = {}
    for kind in kinds or explained.KINDS[:3]:
        if size_bytes:
            estimates = explained.size_estimates(kind, size_bytes, group, cluster, environment)
            lines += [f"{kind} of {size} between {len(group)} GPUs", *explained.size_lines(estimates)]
            figures[kind] = estimates
        else:
            figures[kind] = explained.size_ranges(kind, group, cluster, environment)
            lines += explained.table_lines(kind, figures[kind])
    variables = list(explained.variable_lines({**cluster.nccl, **environment}))
    return [*lines, *(["variables", *variables] if variables else [])], figures


def _check_group(group: tuple[int, ...], world_size: int) -> None:
    from presim.errors import InputError

    if len(group) < 2:
        raise InputError(
            f"{len(group)} rank has no one to communicate with: describe a cluster of at least two GPUs, e.g. --nodes 2"
        )
    if max(group) >= world_size:
        raise InputError(f"--ranks names rank {max(group)}, and the cluster has {world_size} GPUs; add --nodes")


def _variables(settings: tuple[str, ...]) -> dict[str, str]:
    from presim.errors import InputError

    variables: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (equals and name.startswith("NCCL_")):
            raise InputError(f"--set takes NCCL_NAME=VALUE; got {setting!r}")
        variables[name] = value
    return variables


def _run(
    topology: Topology,
    kind: str,
    size: str,
    ranks: str | None,
    is_simultaneous: bool,
    resolution: Any,
    budget: str | None,
) -> Any:
    from presim.errors import InputError
    from presim.hardware.network import network_effort
    from presim.hardware.network.exchange import Exchange, run
    from presim.hardware.network.open import bytes_of, ranks_of
    from presim.system.budgets import budget_of
    from presim.trace.collective import MESSAGES
    from presim.trace.grids import sisters

    participants = ranks_of(ranks) if ranks else tuple(range(topology.gpus))
    if ranks and kind in MESSAGES and len(participants) != 2:
        raise InputError(f"a {kind} is between two ranks, and --ranks names {len(participants)}; name two")
    if len(participants) < 2:
        raise InputError(f"{len(participants)} rank has no one to communicate with: give at least two with --ranks")
    groups = sisters(participants, topology.gpus) if is_simultaneous else [participants]
    exchanges = [Exchange(kind, bytes_of(size), group) for group in groups]
    network_effort.check(topology, exchanges, resolution, budget_of(budget) if budget else None)
    return run(topology, exchanges, resolution), exchanges
