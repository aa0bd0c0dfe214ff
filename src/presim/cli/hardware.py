"""``presim hardware``: list GPUs, node types and fabrics, and the sources of their figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from presim.hardware.network.topology import Topology
    from presim.hardware.schema import Sourced


@click.group("hardware")
def hardware() -> None:
    """List GPUs, node types and fabrics, or show one with its sources."""


command = hardware


@hardware.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def list_(as_json: bool) -> None:
    """List the GPUs, node types and fabrics of the catalogue.

    You can use a TOML file of your own instead of any of them; `presim hardware show ID --toml` prints one to start
    from.
    """
    from presim.hardware import fabrics, gpus, nodes
    from presim.report import hardware as report

    content = report.Catalogue(tuple(gpus()), tuple(nodes()), tuple(fabrics()))
    if as_json:
        click.echo(report.encode(content), nl=False)
    else:
        report.write_catalogue(content)


@hardware.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with presim's internal units.")
@click.option("--toml", "as_toml", is_flag=True, help="Print its TOML file, to start your own from.")
@click.option(
    "--plot", metavar="FILE", help="Draw its links as an SVG: a cluster's network, two nodes, or a fabric of four."
)
def show(name: str, as_json: bool, as_toml: bool, plot: str | None) -> None:
    """Show one GPU, node type or fabric, every figure with its source, or the network of a cluster's file.

    NAME is an id, an alias, or the path of a TOML file, which is also checked.
    """
    if as_json and as_toml:
        raise click.UsageError("--json and --toml exclude each other; use one")
    from presim.hardware.network.drawn import is_cluster, network_of_part
    from presim.report import hardware as report

    if is_cluster(name):
        _show_cluster(name, as_json, as_toml, plot)
        return
    part = _find(name)
    if plot:
        _draw(network_of_part(name, part), plot)
    if as_json:
        click.echo(report.encode(part), nl=False)
    elif as_toml:
        _print_toml(name, type(part))
    else:
        report.write_part(part)


def _show_cluster(name: str, as_json: bool, as_toml: bool, plot: str | None) -> None:
    from presim.hardware.network.drawn import network_of_cluster
    from presim.report import hardware as report

    cluster, topology = network_of_cluster(name)
    if plot:
        _draw(topology, plot)
    content = report.encode_cluster(cluster, report.ClusterSize(len(topology.names), topology.links))
    if as_json:
        click.echo(content, nl=False)
    elif as_toml:
        _print_toml(name, type(cluster.gpu))
    else:
        from presim.files import decode_json

        click.echo(report.cluster_text(decode_json(content)))


def _draw(topology: Topology, file: str) -> None:
    from presim.files import check_writable, write_file
    from presim.hardware.network.plot import svg

    check_writable(file)
    write_file(file, svg(topology).encode())


def _find(name: str) -> Sourced:
    """Find a part by name: GPUs first, ids before aliases."""
    from presim.errors import InputError
    from presim.hardware import catalogue
    from presim.hardware.cluster import Fabric, Node
    from presim.hardware.schema import Gpu

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

    from presim.files import read_text
    from presim.hardware import catalogue

    path = Path(name) if name.endswith(".toml") else catalogue.builtin_path(kind, name)
    click.echo(read_text(path, "give the path of a TOML file"), nl=False)
