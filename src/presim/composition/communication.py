"""Communication operators that passes insert into a graph, and the trace entries they become."""

from __future__ import annotations

from typing import cast

from presim.composition.entry_templates import Rows
from presim.composition.graph.graph_schema import Node, Operand
from presim.composition.graph.works import Sizes
from presim.composition.passes.collective_names import ALL_GATHER, COMBINE, DISPATCH, SEND_RECV, WAIT
from presim.trace.collective import Routed, Splits
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Collective

_STREAM = 1


def full_operand(node: Node) -> Operand:
    """The tensor that determines the collective's size: the larger of input and output; tokens before a dispatch."""
    return node.outputs[0] if node.operator in (ALL_GATHER, COMBINE) else node.inputs[0]


def emit(rows: Rows, node: Node, sizes: Sizes, groups: dict[str, int]) -> None:
    """Emit the entries of one communication node, as PyTorch's NCCL process group issues them."""
    operand = (node.outputs or node.inputs)[0]
    event = f"done {operand.value}"
    if node.operator == WAIT:
        rows.wait(event, 0)
        return
    ready = f"ready {operand.value}"
    signature = signature_of(node, sizes, groups)
    rows.record(ready, 0)
    rows.wait(ready, _STREAM)
    rows.work(f"nccl::{signature.kind}", signature, stream=_STREAM, scope=node.scope)
    rows.record(event, _STREAM)
    rows.record(f"also {operand.value}", _STREAM)


def signature_of(node: Node, sizes: Sizes, groups: dict[str, int]) -> Collective:
    """The collective of a communication node that is no wait."""
    operand = (node.outputs or node.inputs)[0]
    counted = node.inputs if node.operator == SEND_RECV else (full_operand(node),)
    size = sum(sizes.elements(counted_operand) for counted_operand in counted) * dtype_bytes(operand.dtype)
    group, peer = groups[str(node.attributes["group"])], int(str(node.attributes.get("peer", -1)))
    splits = _splits(node, size) if "sent" in node.attributes else None
    is_routed = node.operator in (DISPATCH, COMBINE)
    routed = _routed(node, sizes.shapes[full_operand(node).shape][0], size) if is_routed else None
    kind = node.operator.removeprefix("comm::")
    return Collective(kind, size, operand.dtype, group, peer, len(counted), splits, routed)


def _splits(node: Node, size: int) -> Splits:
    """Bytes to and from each rank, of which this is the first."""
    sent, received = (list(cast("list[int]", node.attributes[way])) for way in ("sent", "received"))
    row = size // max(1, sum(sent))
    return Splits(0, tuple(rows * row for rows in sent), tuple(rows * row for rows in received))


def _routed(node: Node, tokens: int, size: int) -> Routed:
    """How a library deals tokens out, its window as the library tunes it."""
    experts_per_token, experts, sms = (int(str(node.attributes[name])) for name in ("chosen", "experts", "sms"))
    return Routed(str(node.attributes["library"]), tokens, size // max(1, tokens), experts_per_token, experts, sms)
