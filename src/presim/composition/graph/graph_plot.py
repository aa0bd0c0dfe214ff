"""Draw one block of a graph as SVG: its modules in order, their work, and the data flow between them."""

from __future__ import annotations

from html import escape

from presim.composition.graph.graph_schema import Node, OperatorGraph, Segment
from presim.composition.graph.works import Sizes, works
from presim.errors import InputError

_WIDTH, _HEIGHT, _GAP, _LEFT = 430, 42, 16, 150  # of a box, in px


def svg(graph: OperatorGraph, batch: int, sequence: int) -> str:
    """The forward pass of the block that is repeated most.

    Raises:
        InputError: the graph has no repeated blocks.
    """
    blocks = [segment for segment in graph.segments if segment.name and not segment.backward]
    if not blocks:
        raise InputError(f"{graph.model} has no repeated blocks to draw; see `presim graph show` without --plot")
    block = max(blocks, key=lambda segment: segment.count)
    steps = _steps(block)
    sizes = Sizes(graph, batch, sequence)
    boxes = [_box(step_index, scope, nodes, sizes) for step_index, (scope, nodes) in enumerate(steps)]
    arrows = [_arrow(start, end) for start, end in _edges(steps)]
    width, height = _LEFT + _WIDTH + _GAP, 56 + len(steps) * (_HEIGHT + _GAP)
    title = f"{block.name}: {block.count} blocks of {graph.root}, forward, {batch} x {sequence} tokens"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
            '<rect width="100%" height="100%" fill="white"/>',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 L8 4 L0 8 z" fill="#888"/></marker></defs>',
            f'<text x="12" y="26" font-size="14" font-weight="bold">{escape(title)}</text>',
            *arrows,
            *boxes,
            "</svg>",
            "",
        )
    )


def _steps(block: Segment) -> list[tuple[str, list[Node]]]:
    """Operators that run one after the other in one module."""
    steps: list[tuple[str, list[Node]]] = []
    for node in block.nodes:
        if not steps or steps[-1][0] != node.scope:
            if node.view:
                continue
            steps.append((node.scope, []))
        steps[-1][1].append(node)
    return steps


def _edges(steps: list[tuple[str, list[Node]]]) -> list[tuple[int, int]]:
    """(producing step, using step) of every value that crosses steps."""
    maker: dict[int, int] = {}
    edges: dict[tuple[int, int], None] = {}
    for step_index, (_, nodes) in enumerate(steps):
        for node in nodes:
            for operand in node.inputs:
                if maker.get(operand.value, step_index) != step_index:
                    edges[maker[operand.value], step_index] = None
            if not node.view:
                for index in (
                    *(output.value for output in node.outputs),
                    *(node.inputs[position].value for position in node.written),
                ):
                    maker[index] = step_index
    return list(edges)


def _box(step_index: int, scope: str, nodes: list[Node], sizes: Sizes) -> str:
    signatures = [signature for node in nodes for _, signature in works(node, sizes)]
    flops = sum(signature.flops for signature in signatures)
    moved_bytes = sum(int(getattr(signature, "bytes", 0)) for signature in signatures)
    figures = "1 kernel" if len(signatures) == 1 else f"{len(signatures)} kernels"
    figures += f", {flops / 1e9:,.1f} GFLOP" if flops else ""
    figures += f", {moved_bytes / 1e6:,.1f} MB moved" if moved_bytes else ""
    top, fill = _top(step_index), "#dbe9ff" if flops else "#f1f1f1"
    return (
        f'<rect x="{_LEFT}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{fill}" stroke="#555"/>'
        f'<text x="{_LEFT + 10}" y="{top + 17}" font-size="13">{escape(scope.strip(".") or "block")}</text>'
        f'<text x="{_LEFT + 10}" y="{top + 34}" font-size="12" fill="#444">{figures}</text>'
    )


def _arrow(start: int, end: int) -> str:
    """Straight down to the next box, else in an arc on the left."""
    if end == start + 1:
        middle = _LEFT + _WIDTH // 2
        path = f"M{middle} {_top(start) + _HEIGHT} L{middle} {_top(end)}"
    else:
        out, back = _top(start) + _HEIGHT - 10, _top(end) + 10
        bend = max(10, _LEFT - 18 * (end - start))
        path = f"M{_LEFT} {out} C{bend} {out} {bend} {back} {_LEFT} {back}"
    return f'<path d="{path}" fill="none" stroke="#888" marker-end="url(#tip)"/>'


def _top(step_index: int) -> int:
    return 44 + step_index * (_HEIGHT + _GAP)
