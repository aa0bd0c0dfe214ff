"""Communication inside a graph: the operators that passes insert, and the entries they become."""

from __future__ import annotations

from presim.graph.rows import Rows
from presim.graph.schema import Node
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Collective

ALL_REDUCE = "comm::all_reduce"  # in place, on the stream of collectives
WAIT = "comm::wait"  # the compute stream waits for what was begun on a value
_STREAM = 1


def emit(rows: Rows, node: Node, elements: int, groups: dict[str, int]) -> None:
    """The entries of one such node, as PyTorch's NCCL process group makes them."""
    operand = node.inputs[0]
    event = f"done {operand.value}"
    if node.operator == WAIT:
        rows.wait(event, 0)
        return
    ready = f"ready {operand.value}"
    kind = node.operator.removeprefix("comm::")
    size = elements * dtype_bytes(operand.dtype)
    rows.record(ready, 0)
    rows.wait(ready, _STREAM)
    signature = Collective(kind, size, operand.dtype, groups[str(node.attributes["group"])])
    rows.work(f"nccl::{kind}", signature, stream=_STREAM, scope=node.scope)
    rows.record(event, _STREAM)
    rows.record(f"also {operand.value}", _STREAM)
