"""``presim hardware``: list GPUs, node types and fabrics, and the sources of their figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from presim.hardware.cluster import Fabric, Node
    from presim.hardware.schema import Gpu, Sourced
    from presim.network.topology import Topology

# Columns that never wrap.
_WHOLE = ("id", "figure", "default fabric", "interconnect", "kind", "GiB", "TB/s", "bf16", "fp8", "fp4", "NVLink", "W")
_LEAST_WIDTH = 76  # narrowest terminal; below it, figures would lose digits


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

    if as_json:
        _print_json({"gpus": gpus(), "nodes": nodes(), "fabrics": fabrics()})
        return
    _print(_gpu_table(gpus()), _node_table(nodes()), _fabric_table(fabrics()))


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
    from presim.network.drawn import is_cluster, network_of_part

    if is_cluster(name):
        _show_cluster(name, as_json, as_toml, plot)
        return
    part = _find(name)
    if plot:
        _draw(network_of_part(name, part), plot)
    if as_json:
        _print_json(part)
    elif as_toml:
        _print_toml(name, type(part))
    else:
        _print(_figures(part), *_remarks(part))


def _show_cluster(name: str, as_json: bool, as_toml: bool, plot: str | None) -> None:
    from presim.network.drawn import network_of_cluster

    cluster, topology = network_of_cluster(name)
    if plot:
        _draw(topology, plot)
    if as_json:
        _print_json(cluster)
    elif as_toml:
        _print_toml(name, type(cluster.gpu))
    else:
        for part in cluster.all_parts:
            title = f"group {part.name!r}" if part.name else "all nodes" if not cluster.groups else "the rest"
            count = f"{part.nodes} nodes from node {part.first_node}: " if part.name else ""
            click.echo(f"{title}: {count}{part.gpu.id} in {part.node.id} on {part.fabric.id}")
        click.echo(
            f"{cluster.world_size} GPUs, {cluster.gpus_per_node} on each of {cluster.nodes} nodes; the network has "
            f"{len(topology.names)} vertices and {topology.links} links, one way each"
        )


def _draw(topology: Topology, file: str) -> None:
    from presim.files import check_writable, write_file
    from presim.network.plot import svg

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
    known = [kind for kind in kinds if name in catalogue.ids(kind)]
    for kind in known or kinds:
        try:
            return catalogue.find(kind, name)
        except InputError:
            continue
    near = " or ".join(catalogue.nearest(name, kinds))
    hint = f"did you mean {near}?" if near else "`presim hardware list` shows all."
    raise InputError(f"no GPU, node type or fabric is called {name!r}; {hint}")


def _figures(part: Sourced) -> Table:
    """Every known figure, with the number of its source in the list of `_remarks`."""
    from presim.hardware.codec import keys, outside

    table = _table(f"{part.id}: {part.name}", "figure", "value", "source", "what it is")
    for key in keys(type(part)):
        value = getattr(part, key.field)
        source = part.source(key.key)
        if key.figure and (value or source):
            number = f"[{part.sources.index(source) + 1}]" if source else "none"
            mark = "~" if source and source.estimate else ""
            table.add_row(key.key, f"{mark}{outside(key, value):.12g}", number, key.text)
    return table


def _remarks(part: Sourced) -> list[str]:
    """Sources, then non-numeric facts, then implausible figures."""
    from presim.hardware.codec import keys
    from presim.hardware.sanity_checks import implausible
    from presim.hardware.schema import Gpu

    sources = [
        f"[{number}] {'~ ' if source.estimate else ''}{source.text}" for number, source in enumerate(part.sources, 1)
    ]
    facts = [
        f"{key.field}: {value}"
        for key in keys(type(part))
        if not key.figure and key.field not in ("id", "name", "sources", "links")
        for value in (getattr(part, key.field),)
        if value not in ("", ())
    ]
    doubts = [f"implausible: {doubt}" for doubt in (implausible(part) if isinstance(part, Gpu) else [])]
    return [
        *sources,
        *(["~ estimated"] if any(source.estimate for source in part.sources) else []),
        "",
        *facts,
        *doubts,
    ]


def _gpu_table(gpus: Iterable[Gpu]) -> Table:
    from presim.units import GIB, three_digits

    table = _table("GPUs", "id", "name", "GiB", "TB/s", "bf16", "fp8", "fp4", "NVLink", "W")
    for gpu in gpus:
        peaks = (three_digits(peak / 1e12) if (peak := gpu.peak(kind)) else "-" for kind in ("bf16", "fp8", "fp4"))
        link = f"{gpu.nvlink_bytes_per_s / 1e9:.0f}" if gpu.nvlink_bytes_per_s else "-"
        memory, bandwidth = f"{gpu.memory_bytes / GIB:.1f}", three_digits(gpu.memory_bytes_per_s / 1e12)
        table.add_row(gpu.id, gpu.name.removeprefix("NVIDIA "), memory, bandwidth, *peaks, link, f"{gpu.power_w:.0f}")
    table.caption = "bf16, fp8, fp4: dense TFLOP/s; NVLink: GB/s, one way"
    table.caption_justify = "left"
    return table


def _node_table(nodes: Iterable[Node]) -> Table:
    table = _table("Node types", "id", "name", "GPUs", "interconnect", "PCIe", "NICs", "default fabric")
    for node in nodes:
        gpus = f"{node.gpus} of {node.domain}" if node.domain > node.gpus else str(node.gpus)
        table.add_row(
            node.id, node.name, gpus, node.interconnect, str(node.pcie_generation), str(node.nics), node.default_fabric
        )
    return table


def _fabric_table(fabrics: Iterable[Fabric]) -> Table:
    from presim.units import rate, seconds

    table = _table("Fabrics", "id", "name", "kind", "port, one way", "latency")
    for fabric in fabrics:
        latency = seconds(fabric.latency_ns * 1e-9)
        table.add_row(fabric.id, fabric.name, fabric.kind, rate(fabric.port_bytes_per_s), latency)
    return table


def _table(title: str, *columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for column in columns:
        text = column in ("id", "name", "interconnect", "kind", "default fabric", "figure", "what it is")
        table.add_column(column, justify="left" if text else "right", no_wrap=column in _WHOLE, overflow="fold")
    return table


def _print(*parts: Table | str) -> None:
    from rich.console import Console

    console = Console()
    console.width = max(console.width, _LEAST_WIDTH)
    for part in parts:
        console.print(part, highlight=False, markup=False)


def _print_json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value)))


def _print_toml(name: str, kind: type[Sourced]) -> None:
    from pathlib import Path

    from presim.files import read_text
    from presim.hardware import catalogue

    path = Path(name) if name.endswith(".toml") else catalogue.builtin_path(kind, name)
    click.echo(read_text(path, "give the path of a TOML file"), nl=False)
