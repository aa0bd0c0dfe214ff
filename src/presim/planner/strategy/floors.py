"""Work and memory of each part of one micro-batch, at the prices that the simulation uses, before anything is composed.

Kernels of one stream run one after the other. A collective counts where the compute stream waits for it before its next
kernel: those of tensor, context and expert parallelism between layers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from presim.composition.graph.graph_schema import OperatorGraph, Segment
    from presim.composition.graph.works import Sizes
    from presim.composition.plan import Plan
    from presim.cost.chain import Chain
    from presim.hardware.cluster import Cluster
    from presim.trace.signatures import Signature

_GRAPH_FIELDS = (
    *("tensor", "sequence_parallel", "splits_words", "context", "context_style"),
    *("expert", "expert_exchange", "routing", "expert_capacity", "pad_experts"),
    *("attention", "passes", "sequence", "micro_batch"),
)


@dataclasses.dataclass(frozen=True)
class Floor:
    """Lower bounds of one micro-batch on one rank; arrays by segment of the graph, for one block of it."""

    graph: OperatorGraph  # of one rank, without a pipeline
    forward_ns: NDArray[np.float64]
    backward_ns: NDArray[np.float64]
    again_ns: NDArray[np.float64]  # recomputation, of repeated forward segments
    saved_bytes: NDArray[np.int64]  # what a forward segment produces and its backward pass reads
    input_bytes: NDArray[np.int64]  # what a block receives from the block before it
    is_block: NDArray[np.bool_]  # repeated segments


def graph_key(plan: Plan) -> tuple[object, ...]:
    """What the graph of a rank depends on; plans with equal keys have equal graphs on one kind of GPU."""
    return (*(getattr(plan, name) for name in _GRAPH_FIELDS), plan.data_style == "zero1")


def graph_of_rank(graph: OperatorGraph, plan: Plan, cluster: Cluster) -> OperatorGraph:
    """The graph of one rank as composing makes it, but without a pipeline and with all activations kept.

    Raises:
        InputError: the graph cannot be split this way.
    """
    import msgspec

    from presim.composition.plan_passes import apply_passes

    style = "zero1" if plan.data_style == "zero1" else "fsdp2"
    unpipelined_plan = msgspec.structs.replace(
        plan, pipeline=1, virtual=1, schedule="", stages=(), activation_budget=1.0, data_style=style, shard=0
    )
    return apply_passes(graph, unpipelined_plan, cluster)[0]


def floor_of(graph: OperatorGraph, plan: Plan, cluster: Cluster, chain: Chain) -> Floor:
    """Price the parts of a rank's graph (`graph_of_rank`)."""
    from presim.composition.graph.works import Sizes
    from presim.composition.layout import groups, layout

    process_groups = groups(layout(plan, cluster.world_size))
    group_indices = {group.name: index for index, group in enumerate(process_groups)}
    sizes = Sizes(graph, plan.micro_batch, plan.local_sequence)
    work_by_segment = [_serial_work(segment, sizes, group_indices) for segment in graph.segments]
    signatures = list(dict.fromkeys(work for segment in work_by_segment for node in segment for work in node))
    prices, _ = chain.price_all(signatures, process_groups, cluster)
    ns = {signature: price.duration_ns for signature, price in zip(signatures, prices)}
    node_ns = [[sum(ns[work] for work in node) for node in segment] for segment in work_by_segment]
    is_backward = np.array([segment.backward for segment in graph.segments])
    segment_ns = np.array([float(sum(nodes)) for nodes in node_ns])
    numbers = range(len(graph.segments))
    return Floor(
        graph=graph,
        forward_ns=np.where(is_backward, 0.0, segment_ns),
        backward_ns=np.where(is_backward, segment_ns, 0.0),
        again_ns=np.array([float(sum(node_ns[index][: _repeated_nodes(graph, index, plan)])) for index in numbers]),
        saved_bytes=np.array([_read_backwards(graph, index, plan) for index in numbers], np.int64),
        input_bytes=np.array([_input_bytes(segment, plan) for segment in graph.segments], np.int64),
        is_block=np.array([bool(segment.name) for segment in graph.segments]),
    )


def _serial_work(segment: Segment, sizes: Sizes, groups: Mapping[str, int]) -> list[Sequence[Signature]]:
    """For each node, the signatures that cannot overlap with other work of the segment."""
    from presim.composition.communication import signature_of
    from presim.composition.graph.works import works
    from presim.composition.passes.collective_names import PREFIX, WAIT

    work_by_node: list[Sequence[Signature]] = [[work for _, work in works(node, sizes)] for node in segment.nodes]
    for index, node in enumerate(segment.nodes):
        if not node.operator.startswith(PREFIX) or node.operator == WAIT:
            continue
        target = (node.outputs or node.inputs)[0].value
        for later in range(index + 1, len(segment.nodes)):
            other = segment.nodes[later]
            if other.operator == WAIT and other.inputs[0].value == target:
                work_by_node[index] = [signature_of(node, sizes, dict(groups))]
                break
            if work_by_node[later]:
                break
    return work_by_node


def _repeated_nodes(graph: OperatorGraph, index: int, plan: Plan) -> int:
    """Number of nodes that recomputation of a block runs again; 0 for what is not a block's forward pass."""
    from presim.composition.block_templates import needed_again

    segment = graph.segments[index]
    if segment.backward or not segment.name:
        return 0
    is_whole = plan.recompute_whole or plan.data_style == "zero1"
    return len(segment.nodes) if is_whole else needed_again(graph, index)


def _read_backwards(graph: OperatorGraph, index: int, plan: Plan) -> int:
    """Bytes that a forward segment produces and the backward pass of the same block reads."""
    from presim.composition.graph.graph_schema import ValueOrigin
    from presim.composition.graph.sizes import read

    forward = graph.segments[index]
    if forward.backward:
        return 0
    used = {
        value.index
        for segment in graph.segments
        if segment.backward and (segment.twin == index or not forward.name)
        for value in segment.values
        if value.origin is ValueOrigin.SEGMENT and value.segment == index
    }
    values = [forward.values[number] for number in used]
    size = (plan.micro_batch, plan.local_sequence)
    return sum(read(value.bytes)(*size) for value in values if value.origin is ValueOrigin.OWN)


def _input_bytes(segment: Segment, plan: Plan) -> int:
    """Bytes that a block's forward pass receives from the block before it."""
    from presim.composition.graph.graph_schema import ValueOrigin
    from presim.composition.graph.sizes import read

    if segment.backward or not segment.name:
        return 0
    size = (plan.micro_batch, plan.local_sequence)
    return sum(read(value.bytes)(*size) for value in segment.values if value.origin is ValueOrigin.CARRY)
