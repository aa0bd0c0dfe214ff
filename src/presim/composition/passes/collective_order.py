"""Start collectives earlier, and do what does not need their result before waiting for them.

Within a segment, nodes keep the order of their reads and writes; collectives keep their order among each other, so
that all ranks of a group still call them in the same order. What remains free is decided node by node: a collective
that can start, then work that leads to the next one, then other work, and a wait only when nothing else is left. In a
backward pass this puts gradients of weights behind the collective of the input's gradient, as Megatron-LM's
asynchronous all-reduce does. Activations that the moved work reads are kept longer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from presim.composition.graph.graph_schema import Node, OperatorGraph, Segment, ValueOrigin
from presim.composition.graph.works import READS_BACK
from presim.composition.passes.collective_names import PREFIX, WAIT

NAME = "early-collectives"


def apply(graph: OperatorGraph) -> OperatorGraph:
    """The graph with collectives started as early as possible; no node is added or removed."""
    segments = tuple(_reordered(graph, index) for index in range(len(graph.segments)))
    return msgspec.structs.replace(graph, segments=segments)


def _reordered(graph: OperatorGraph, index: int) -> Segment:
    segment = graph.segments[index]
    if not any(node.operator.startswith(PREFIX) for node in segment.nodes):
        return segment
    border = 0 if segment.backward else _recomputed_nodes(graph, index)  # recomputation runs the same nodes as before
    nodes = (*_in_new_order(segment.nodes[:border]), *_in_new_order(segment.nodes[border:]))
    return msgspec.structs.replace(segment, nodes=nodes)


def _recomputed_nodes(graph: OperatorGraph, index: int) -> int:
    """Number of nodes of a forward segment up to the last that makes a value for the backward pass."""
    needed = {
        value.index
        for other in graph.segments
        if other.twin == index
        for value in other.values
        if value.origin is ValueOrigin.SEGMENT and value.segment == index
    }
    makers = [
        position
        for position, node in enumerate(graph.segments[index].nodes)
        if not node.view and any(operand.value in needed for operand in node.outputs)
    ]
    return max(makers, default=-1) + 1


def _in_new_order(nodes: Sequence[Node]) -> list[Node]:
    followers, missing = _dependencies(nodes)
    launches = [position for position, node in enumerate(nodes) if _is_launch(node)]
    leads_to = _first_launch_after(followers, launches, len(nodes))
    ready = {position for position, count in enumerate(missing) if not count}
    order: list[int] = []
    while ready:
        position = min(ready, key=lambda candidate: _priority(nodes[candidate], candidate, leads_to[candidate]))
        ready.remove(position)
        order.append(position)
        for follower in followers[position]:
            missing[follower] -= 1
            if not missing[follower]:
                ready.add(follower)
    return [nodes[position] for position in order]


def _priority(node: Node, position: int, launch: int) -> tuple[bool, bool, int, int]:
    return node.operator == WAIT, not _is_launch(node), launch, position


def _first_launch_after(followers: Sequence[set[int]], launches: Sequence[int], count: int) -> list[int]:
    """Of each node the first collective that depends on it; ``count`` if none does."""
    first = [count] * count
    is_launch = set(launches)
    for position in reversed(range(count)):
        later = [follower if follower in is_launch else first[follower] for follower in followers[position]]
        first[position] = min(later, default=count)
    return first


def _dependencies(nodes: Sequence[Node]) -> tuple[list[set[int]], list[int]]:
    """Of each node the later nodes that need it first, and the number of earlier ones that it needs."""
    followers: list[set[int]] = [set() for _ in nodes]
    last_write: dict[int, int] = {}
    reads: dict[int, list[int]] = {}
    sent_values: dict[int, set[int]] = {}  # value of a running collective -> what it reads
    last_launch, barrier = -1, -1
    for position, node in enumerate(nodes):
        read, written = _accesses(node)
        if node.operator == WAIT:
            read |= sent_values.pop(node.inputs[0].value, set())
        before = {last_write[value] for value in read | written if value in last_write}
        before |= {reader for value in written for reader in reads.get(value, ())}
        if _is_launch(node):
            before |= {last_launch} if last_launch >= 0 else set()
            last_launch = position
            sent_values[(node.outputs or node.inputs)[0].value] = read
        if node.operator in READS_BACK:  # the host waits: everything stays on its side
            before |= set(range(barrier + 1, position))
        before |= {barrier} if barrier >= 0 else set()
        barrier = position if node.operator in READS_BACK else barrier
        for value in written:
            last_write[value], reads[value] = position, []
        for value in read:
            reads.setdefault(value, []).append(position)
        for earlier in before:
            followers[earlier].add(position)
    missing = [0] * len(nodes)
    for positions in followers:
        for position in positions:
            missing[position] += 1
    return followers, missing


def _accesses(node: Node) -> tuple[set[int], set[int]]:
    """The values that a node reads and those that it writes; a wait makes its value complete."""
    read = {operand.value for operand in node.inputs}
    if node.operator == WAIT:
        return read, read
    if node.view:
        return read | {operand.value for operand in node.outputs}, set()
    written = {operand.value for operand in node.outputs} | {node.inputs[position].value for position in node.written}
    if _is_launch(node) and not node.outputs:
        written |= read
    return read, written


def _is_launch(node: Node) -> bool:
    return node.operator.startswith(PREFIX) and node.operator != WAIT
