"""Communication operators that passes insert into a graph, and the trace entries they become."""

from __future__ import annotations

from collections.abc import Callable

from presim.compose.rows import Rows
from presim.graph.schema import Node, Operand
from presim.passes.collectives import ALL_GATHER, SEND_RECV, WAIT
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Collective

_STREAM = 1


def whole(node: Node) -> Operand:
    """The tensor that determines the collective's size: the larger of input and output."""
    return node.outputs[0] if node.operator == ALL_GATHER else node.inputs[0]


def emit(rows: Rows, node: Node, elements: Callable[[Operand], int], groups: dict[str, int]) -> None:
    """Emit the entries of one communication node, as PyTorch's NCCL process group issues them."""
    operand = (node.outputs or node.inputs)[0]
    event = f"done {operand.value}"
    if node.operator == WAIT:
        rows.wait(event, 0)
        return
    ready = f"ready {operand.value}"
    kind = node.operator.removeprefix("comm::")
    counted = node.inputs if node.operator == SEND_RECV else (whole(node),)
    size = sum(elements(one) for one in counted) * dtype_bytes(operand.dtype)
    rows.record(ready, 0)
    rows.wait(ready, _STREAM)
    group, peer = groups[str(node.attributes["group"])], int(str(node.attributes.get("peer", -1)))
    signature = Collective(kind, size, operand.dtype, group, peer, fused=len(counted))
    rows.work(f"nccl::{kind}", signature, stream=_STREAM, scope=node.scope)
    rows.record(event, _STREAM)
    rows.record(f"also {operand.value}", _STREAM)
