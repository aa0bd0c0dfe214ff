"""Summarise a graph by module: parameters, FLOPs and bytes of a step (`presim graph show`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.parameters import elements
from presim.composition.graph.works import Sizes, works
from presim.trace.signatures import Copy

if TYPE_CHECKING:
    from rich.table import Table


class Module(msgspec.Struct, frozen=True):
    """One module, including its submodules."""

    name: str  # with * for the number of a repeated block
    count: int  # number of instances
    parameters: int  # of one of them
    flops: int  # of products and attention, forward and backward, of one of them
    bytes: int  # read and written by work that memory bounds, likewise
    operators: int


def by_module(graph: OperatorGraph, batch: int, sequence: int, depth: int = 99) -> list[Module]:
    """Modules in the order in which they first run, down to a depth below the repeated blocks."""
    figures_by_module: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    sizes = Sizes(graph, batch, sequence)
    for segment in graph.segments:
        for node in segment.nodes:
            path = _path(segment.name, node.scope)
            signatures = works(node, sizes)
            flops = sum(signature.flops for _, signature in signatures)
            moved_bytes = sum(_bytes(signature) for _, signature in signatures)
            for name in _ancestors(path, depth):
                counts.setdefault(name, segment.count if segment.name and name.startswith(segment.name) else 1)
                times = segment.count // counts[name]
                row = figures_by_module.setdefault(name, [0, 0, 0, 0])
                row[1] += flops * times
                row[2] += moved_bytes * times
                row[3] += len(signatures) * times
    for parameter in graph.parameters:
        home = graph.segments[parameter.segment] if parameter.segment >= 0 else None
        module = _path(home.name if home else "", parameter.name.rpartition(".")[0])
        for name in _ancestors(module, depth):
            times = (home.count if home else 1) // counts.get(name, 1)
            figures_by_module.setdefault(name, [0, 0, 0, 0])[0] += elements(parameter) * max(1, times)
    return [Module(name or graph.root, counts.get(name, 1), *row) for name, row in figures_by_module.items()]


class GraphSummary(msgspec.Struct, frozen=True):
    """The answer of `presim graph show`."""

    modules: list[Module]
    schema: str = "presim-graph-summary/1"


def encode(content: GraphSummary) -> bytes:
    """As JSON, one line."""
    return msgspec.json.encode(content) + b"\n"


def write(content: GraphSummary) -> None:
    """As a table on standard output."""
    from rich.console import Console

    Console(markup=False, emoji=False).print(render(content))


def render(content: GraphSummary) -> Table:
    """The summary as a table."""
    from rich.table import Table

    table = Table(box=None)
    table.add_column("module", overflow="fold")
    for title in ("count", "parameters", "GFLOP", "memory-bound GB", "operators"):
        table.add_column(title, justify="right")
    for module in content.modules:
        work = (f"{module.flops / 1e9:,.1f}", f"{module.bytes / 1e9:,.3f}", f"{module.operators:,}")
        table.add_row(module.name, str(module.count), f"{module.parameters:,}", *work)
    return table


def _path(block: str, scope: str) -> str:
    return f"{block}{scope.rstrip('.')}" if scope.startswith(".") else scope


def _ancestors(path: str, depth: int) -> list[str]:
    """The module and its parents, outermost first; a block and its list count as one level."""
    parts = path.split(".") if path else []
    names = [""] + [".".join(parts[: index + 1]) for index in range(len(parts))]
    return [name for name in names if name.count(".") < depth + 1 or not name]


def _bytes(signature: object) -> int:
    if isinstance(signature, Copy):
        return 2 * signature.bytes
    return int(getattr(signature, "bytes", 0))
