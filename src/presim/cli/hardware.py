"""``presim hardware``: list GPUs, node types and fabrics, and the sources of their figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from presim.cli.report_options import Report, report_options
from presim.cli.verb import VerbGroup

if TYPE_CHECKING:
    from presim.hardware.gpu_schema import Sourced
    from presim.hardware.network.topology import Topology


@click.group("hardware", cls=VerbGroup)
def hardware() -> None:
    """List GPUs, node types and fabrics, or show one with its sources."""


command = hardware


@hardware.command("list")
@report_options
def list_(**options: Any) -> None:
    """List the GPUs, node types and fabrics of the catalogue.

    You can use a TOML file of your own instead of any of them; `presim hardware show ID --toml` prints one to start
    from.
    """
    from presim.hardware import fabrics, gpus, nodes
    from presim.report import hardware as report

    delivery = Report.pop_from(options)
    content = report.Catalogue(tuple(gpus()), tuple(nodes()), tuple(fabrics()))
    delivery.deliver("hardware", content, report.encode(content))


@hardware.command("show")
@click.argument("name")
@click.option("--toml", "as_toml", is_flag=True, help="Print its TOML file, to start your own from.")
@click.option(
    "--plot", metavar="FILE", help="Draw its links as an SVG: a cluster's network, two nodes, or a fabric of four."
)
@report_options
def show(name: str, as_toml: bool, plot: str | None, **options: Any) -> None:
    """Show one GPU, node type or fabric, every figure with its source, or the network of a cluster's file.

    NAME is an id, an alias, or the path of a TOML file, which is also checked.
    """
    delivery = Report.pop_from(options)
    if as_toml and (delivery.json_file or delivery.html):
        raise click.UsageError(f"{'--json' if delivery.json_file else '--html'} and --toml exclude each other; use one")
    from presim.hardware.network.network_choice import is_cluster, network_of_part
    from presim.report import hardware as report

    if is_cluster(name):
        _show_cluster(name, as_toml, plot, delivery)
        return
    part = _find(name)
    if plot:
        _draw(network_of_part(name, part), plot)
    if as_toml:
        _print_toml(name, type(part))
    else:
        delivery.deliver(type(part).__name__.lower(), part, report.encode(part))


def _show_cluster(name: str, as_toml: bool, plot: str | None, delivery: Report) -> None:
    from presim.hardware.network.network_choice import network_of_cluster
    from presim.report import hardware as report

    cluster, topology = network_of_cluster(name)
    if plot:
        _draw(topology, plot)
    content = report.encode_cluster(cluster, report.ClusterSize(len(topology.names), topology.links))
    if as_toml:
        _print_toml(name, type(cluster.gpu))
    else:
        from presim.system.files import decode_json

        delivery.deliver("cluster", decode_json(content), content)


def _draw(topology: Topology, file: str) -> None:
    from presim.hardware.network.topology_plot import svg
    from presim.system.files import check_writable, write_file

    check_writable(file)
    write_file(file, svg(topology).encode())


def _find(name: str) -> Sourced:
    """Find a part by name: GPUs first, ids before aliases."""
    from presim.errors import InputError
    from presim.hardware import catalogue
    from presim.hardware.cluster import Fabric, Node
    from presim.hardware.gpu_schema import Gpu

    kinds: tuple[type[Sourced], ...] = (Gpu, Node, Fabric)
    if name.endswith(".toml"):
        return catalogue.find(catalogue.kind_of(name), name)
    kinds_with_name = [kind for kind in kinds if name in catalogue.ids(kind)]
    for kind in kinds_with_name or kinds:
        try:
            return catalogue.find(kind, name)
        except InputError:
            continue
    similar_names = " or ".join(catalogue.nearest(name, kinds))
    hint = f"did you mean {similar_names}?" if similar_names else "`presim hardware list` shows all."
    raise InputError(f"no GPU, node type or fabric is called {name!r}; {hint}")


def _print_toml(name: str, kind: type[Sourced]) -> None:
    from pathlib import Path

    from presim.hardware import catalogue
    from presim.system.files import read_text

    path = Path(name) if name.endswith(".toml") else catalogue.builtin_path(kind, name)
    click.echo(read_text(path, "give the path of a TOML file"), nl=False)
