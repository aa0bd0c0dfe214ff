"""GPUs, node types and fabrics with their sources, and the network of a cluster: in the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from presim.hardware.cluster import Cluster, Fabric, Node
from presim.hardware.codec import keys, to_key_unit
from presim.hardware.gpu_schema import DERIVED, Gpu, Sourced
from presim.hardware.sanity_checks import find_impossible_figures
from presim.system.files import to_type
from presim.units import GIB, rate, seconds, three_digits

# Columns that never wrap.
_WHOLE = ("id", "figure", "default fabric", "interconnect", "kind", "GiB", "TB/s", "bf16", "fp8", "fp4", "NVLink", "W")
_LEAST_WIDTH = 76  # narrowest terminal; below it, figures would lose digits
_SCHEMAS = {Gpu: "presim-gpu/1", Node: "presim-node/1", Fabric: "presim-fabric/1"}


class Catalogue(msgspec.Struct, frozen=True):
    """The answer of `presim hardware list`."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[Node, ...]
    fabrics: tuple[Fabric, ...]
    schema: str = "presim-hardware/1"


class ClusterSize(msgspec.Struct, frozen=True):
    """Vertices and links of a cluster's network, beside its parts."""

    vertices: int
    links: int  # one way each


def encode(content: Catalogue | Sourced) -> bytes:
    """A catalogue or a part of it as JSON, in presim's internal units."""
    if isinstance(content, Sourced):
        return _json({**_builtins(content), "schema": _SCHEMAS[type(content)]})
    return _json(content)


def encode_cluster(cluster: Cluster, size: ClusterSize) -> bytes:
    """A cluster with the size of its network as JSON."""
    return _json({**_builtins(cluster), **_builtins(size), "schema": "presim-cluster/1"})


def _builtins(struct: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(struct)
    return fields


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value)) + b"\n"


def write_catalogue(content: Catalogue) -> None:
    """Print the tables of the catalogue."""
    _write(render_catalogue(content))


def write_part(part: Sourced) -> None:
    """Print a part and its sources."""
    _write(render_part(part))


def _write(report: RenderableType) -> None:
    """Print a report, at least as wide as its figures."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, _LEAST_WIDTH)
    console.print(report)


def render_catalogue(content: Catalogue) -> RenderableType:
    """Tables of the catalogue."""
    return Group(_gpu_table(content.gpus), _node_table(content.nodes), _fabric_table(content.fabrics))


def render_part(part: Sourced) -> RenderableType:
    """Every figure of a part, and its sources."""
    return Group(_figures(part), *map(Text, _remarks(part)))


def cluster_text(content: dict[str, Any]) -> str:
    """In lines: the parts of a cluster's JSON, and the size of its network."""
    cluster = to_type(content, Cluster)
    lines = []
    for part in cluster.all_parts:
        title = f"group {part.name!r}" if part.name else "all nodes" if not cluster.groups else "the rest"
        count = f"{part.nodes} nodes from node {part.first_node}: " if part.name else ""
        lines.append(f"{title}: {count}{part.gpu.id} in {part.node.id} on {part.fabric.id}")
    size = f"{cluster.world_size} GPUs, {cluster.gpus_per_node} on each of {cluster.nodes} nodes"
    if "vertices" in content:  # files of versions without a schema lack it
        size += f"; the network has {content['vertices']} vertices and {content['links']} links, one way each"
    return "\n".join([*lines, size])


def _figures(part: Sourced) -> Table:
    """Every known figure, with the number of its source in the list of `_remarks`."""
    table = _table(f"{part.id}: {part.name}", "figure", "value", "source", "what it is")
    for key in keys(type(part)):
        value = getattr(part, key.field)
        source = part.source(key.key)
        is_derived = isinstance(part, Gpu) and not part.is_gpu and key.key in DERIVED and not source
        if key.figure and (value or source) and not is_derived:
            number = f"[{part.sources.index(source) + 1}]" if source else "none"
            mark = "~" if source and source.estimate else ""
            table.add_row(key.key, f"{mark}{to_key_unit(key, value):.12g}", number, key.text)
    return table


def _remarks(part: Sourced) -> list[str]:
    """Sources, then non-numeric facts, then implausible figures."""
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
    doubts = [f"implausible: {doubt}" for doubt in (find_impossible_figures(part) if isinstance(part, Gpu) else [])]
    return [
        *sources,
        *(["~ estimated"] if any(source.estimate for source in part.sources) else []),
        "",
        *facts,
        *doubts,
    ]


def _gpu_table(gpus: Iterable[Gpu]) -> Table:

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

    table = _table("Fabrics", "id", "name", "kind", "port, one way", "latency")
    for fabric in fabrics:
        latency = seconds(fabric.latency_ns * 1e-9)
        table.add_row(fabric.id, fabric.name, fabric.kind, rate(fabric.port_bytes_per_s), latency)
    return table


def _table(title: str, *columns: str) -> Table:

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for column in columns:
        text = column in ("id", "name", "interconnect", "kind", "default fabric", "figure", "what it is")
        table.add_column(column, justify="left" if text else "right", no_wrap=column in _WHOLE, overflow="fold")
    return table
