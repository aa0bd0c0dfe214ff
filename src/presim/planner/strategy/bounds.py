"""Lower bounds on a plan's step time and memory, computed without composing the plan.

Time: kernels of one stream run one after the other. A step takes at least the sum of its forward and backward kernels,
at the prices that the simulation would use, plus the all-reduces of tensor parallelism that the next kernel waits for.
The last rank of a pipeline starts after one micro-batch has passed all other ranks.

On nodes of different kinds, a rank of each kind has at least the least work of a rank, at the prices of its node; the
wait for other stages counts as on the fastest nodes. Memory is compared with the kind of GPU that has most.

Memory: every parameter and its optimizer states are stored somewhere in the job. Tensors that the backward pass reads
are alive when the forward pass ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from presim.planner.trials.evaluator import Evaluator, plan
from presim.planner.trials.trial import Figures, Point, Value

if TYPE_CHECKING:
    from presim.composition.graph.schema import OperatorGraph, Segment
    from presim.composition.graph.works import Sizes
    from presim.composition.plan import Plan
    from presim.hardware.cluster import Cluster
    from presim.trace.signatures import Signature

# Bytes of a parameter with its states, by data-parallel style: (on every rank, sharded over all ranks). As a lower
# bound, gradients count as zero and parameters that tensor parallelism replicates count as split.
_STATES = {"fsdp2": (0, 12), "hsdp": (0, 12), "ddp": (6, 0), "zero1": (2, 12)}
# The same where the host has the optimizer states.
_ON_HOST = {"fsdp2": (0, 4), "hsdp": (0, 4), "ddp": (2, 0), "zero1": (2, 0)}
_ADAM = 3  # an fp32 parameter with Adam's two moments is 3 times the parameter alone
_WHOLE_BACKWARDS = ("gpipe", "1f1b", "interleaved")  # others fill the bubble with gradients of weights
# Degrees that split a micro-batch's work over ranks and that `_Floor` does not already account for.
_SPREAD = ("context", "expert", "expert_tensor")


@dataclasses.dataclass(frozen=True)
class Bound:
    """Lower bounds of one plan."""

    step_s: float
    memory_bytes: int  # allocator and driver context together
    capacity_bytes: int
    tokens_per_step: float
    gpus: int
    gpu: str

    def figures(self) -> Figures:
        """Figures of a plan that takes exactly this bound."""
        return Figures(
            gpu=self.gpu,
            gpus=self.gpus,
            step_time_s=self.step_s,
            low_s=self.step_s,
            high_s=self.step_s,
            tokens_per_step=self.tokens_per_step,
            mfu=None,
            fits=None,
            memory_bytes=self.memory_bytes,
            headroom_bytes=self.capacity_bytes - self.memory_bytes,
            compute_s=self.step_s,
            communication_s=0.0,
            exposed_communication_s=0.0,
            host_bound_s=0.0,
            idle_s=0.0,
        )


@dataclasses.dataclass(frozen=True)
class _UniformBound:
    """The bound of a cluster of like nodes."""

    bound: Bound
    work_s: float  # kernels of the rank with the least work, without waiting for other stages


@dataclasses.dataclass(frozen=True)
class _Floor:
    """Lower bounds of one micro-batch on one tensor-parallel rank."""

    blocks_ns: float  # kernels of the repeated blocks, forward and backward
    again_ns: float  # recomputation of the blocks
    rest_ns: float
    blocks_bytes: int  # activations that backward reads, over all repeated blocks
    block_bytes: int  # activations of the largest block
    inputs_bytes: int  # inputs of all repeated blocks
    rest_bytes: int
    count: int  # repeated blocks


class Bounds:
    """Computes bounds for one job's points; caches parts that depend on fewer knobs."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._graphs: dict[tuple[Any, ...], OperatorGraph] = {}
        self._floors: dict[tuple[Any, ...], _Floor] = {}

    def of(self, point: Point) -> Bound:
        """The bound of a legal point.

        Raises:
            InputError: the graph cannot be split this way.
        """
        candidate, cluster = plan(point), self._evaluator.cluster(point)
        bounds = [self._uniform_bound(point, candidate, view) for view in cluster.views()]
        slowest = max(bounds, key=lambda bound: bound.work_s)
        fastest = min(bounds, key=lambda bound: bound.bound.step_s)
        roomiest = max(bounds, key=lambda bound: bound.bound.capacity_bytes - bound.bound.memory_bytes).bound
        return dataclasses.replace(
            fastest.bound,
            step_s=max(slowest.work_s, fastest.bound.step_s),
            memory_bytes=roomiest.memory_bytes,
            capacity_bytes=roomiest.capacity_bytes,
        )

    def _uniform_bound(self, point: Point, candidate: Plan, cluster: Cluster) -> _UniformBound:
        """The bound where all nodes are alike."""
        floor = self._floor(candidate, cluster)
        data = candidate.data(cluster.world_size)
        micro = candidate.micro_batches(cluster.world_size)
        spread = _product(point, _SPREAD) * (candidate.tensor if candidate.sequence_parallel else 1)
        stages = _at_least_one(point, "pipeline")
        least = candidate.virtual * (floor.count // (stages * candidate.virtual))  # blocks of the smallest rank
        if candidate.stages:
            least = min(sum(candidate.stages[stage::stages]) for stage in range(stages))
        share = least / floor.count if floor.count and stages > 1 else 1.0 / stages
        blocks_ns = floor.blocks_ns + (floor.again_ns if candidate.recompute == "full" else 0.0)
        own_ns = blocks_ns * share + (floor.rest_ns if stages == 1 else 0.0)
        chunks = stages * candidate.virtual
        bubble_ns = (stages - 1) * blocks_ns * (floor.count // chunks / floor.count if floor.count else 0.0)
        has_bubble = not candidate.stages and candidate.order in _WHOLE_BACKWARDS
        step_ns = (micro * own_ns + (bubble_ns if has_bubble else 0.0)) / spread
        activation_bytes = self._activation_bytes(candidate, floor, share, micro) // spread
        held_bytes = self._state_bytes(candidate, cluster.world_size) + activation_bytes
        bound = Bound(
            step_s=step_ns / 1e9,
            memory_bytes=held_bytes + cluster.gpu.context_bytes,
            capacity_bytes=cluster.gpu.memory_bytes,
            tokens_per_step=float(micro * candidate.micro_batch * candidate.sequence * data),
            gpus=cluster.world_size,
            gpu=cluster.gpu.id,
        )
        return _UniformBound(bound, micro * own_ns / spread / 1e9)

    def _state_bytes(self, candidate: Plan, world_size: int) -> int:
        count = self._evaluator.graph().parameter_count()
        on_host = candidate.offload_optimizer != "none"
        copied, spread = (_ON_HOST if on_host else _STATES).get(candidate.data_style, (0, 0))
        parts = candidate.tensor * candidate.pipeline * candidate.expert  # at most
        least = count * copied // parts + count * spread // world_size
        if candidate.data_style == "hsdp":
            least = count * spread // (candidate.tensor * candidate.pipeline * max(candidate.shard, 1))
        return least if candidate.optimizer == "adamw" or on_host else least // _ADAM

    def _activation_bytes(self, candidate: Plan, floor: _Floor, share: float, micro: int) -> int:
        """Activation bytes on the first stage, which holds one micro-batch in flight per stage."""
        outside_bytes = floor.rest_bytes if candidate.pipeline == 1 else 0
        flying = share * min(candidate.pipeline, micro)
        if candidate.offload_activations or candidate.activation_budget < 1:
            return outside_bytes
        if candidate.recompute == "none":
            return int(floor.blocks_bytes * flying) + outside_bytes
        if candidate.recompute == "full":
            return int(floor.inputs_bytes * flying) + max(floor.block_bytes, outside_bytes)
        return 0

    def _floor(self, candidate: Plan, cluster: Cluster) -> _Floor:
        backend = candidate.attention
        if backend == "auto":
            backend = "cudnn" if cluster.gpu.compute_major >= 9 else "flash"
        name = (
            cluster.gpu.id,
            cluster.node.id,
            cluster.fabric.id,
            cluster.world_size,
            candidate.tensor,
            candidate.micro_batch,
            candidate.sequence,
            backend,
            candidate.passes,
        )
        if name not in self._floors:
            graph = self._graph(candidate, backend)
            self._floors[name] = self._price_floor(graph, candidate, cluster)
        return self._floors[name]

    def _graph(self, candidate: Plan, backend: str) -> OperatorGraph:
        from presim.composition.passes import attention, compiled, registry, tensor_parallel

        passes = candidate.passes
        name = (candidate.tensor, backend, passes)
        if name not in self._graphs:
            graph = attention.apply(tensor_parallel.apply(self._evaluator.graph(), candidate.tensor), backend)
            if passes:
                graph, _ = registry.apply(compiled.apply(graph), passes, candidate.micro_batch, candidate.sequence)
            self._graphs[name] = graph
        return self._graphs[name]

    def _price_floor(self, graph: OperatorGraph, candidate: Plan, cluster: Cluster) -> _Floor:
        from presim.composition.graph.works import Sizes
        from presim.trace.schema import Group

        batch, sequence = candidate.micro_batch, candidate.sequence
        sizes = Sizes(graph, batch, sequence)
        per_segment = [_serial_work(segment, sizes) for segment in graph.segments]
        signatures = list(dict.fromkeys(work for segment in per_segment for works in segment for work in works))
        tensor = Group("tensor", tuple(range(candidate.tensor)), candidate.tensor)
        prices, _ = self._evaluator.chain(cluster).price_all(signatures, (tensor,), cluster)
        ns = {signature: price.duration_ns for signature, price in zip(signatures, prices)}
        saved_bytes = [_read_backwards(graph, index, batch, sequence) for index in range(len(graph.segments))]
        blocks = [index for index, segment in enumerate(graph.segments) if segment.name]
        outside_blocks = [index for index, segment in enumerate(graph.segments) if not segment.name]
        times = [[sum(ns[work] for work in works) for works in segment] for segment in per_segment]
        count = [segment.count for segment in graph.segments]
        forward = [index for index in blocks if not graph.segments[index].backward]
        recompute_ends = {index: _last_product(graph.segments[index]) for index in forward}
        return _Floor(
            blocks_ns=float(sum(sum(times[index]) * count[index] for index in blocks)),
            again_ns=float(sum(sum(times[index][:end]) * count[index] for index, end in recompute_ends.items())),
            rest_ns=float(sum(sum(times[index]) for index in outside_blocks)),
            blocks_bytes=sum(saved_bytes[index] * count[index] for index in blocks),
            block_bytes=max((saved_bytes[index] for index in blocks), default=0),
            inputs_bytes=sum(_input_bytes(graph.segments[index], batch, sequence) * count[index] for index in forward),
            rest_bytes=sum(saved_bytes[index] for index in outside_blocks),
            count=sum(count[index] for index in forward),
        )


def _serial_work(segment: Segment, sizes: Sizes) -> list[list[Signature]]:
    """For each node, the signatures that cannot overlap with other work of the segment."""
    from presim.composition.graph.works import works
    from presim.composition.passes.collectives import WAIT
    from presim.trace.dtypes import dtype_bytes
    from presim.trace.signatures import Collective

    work_by_node: list[list[Signature]] = [[work for _, work in works(node, sizes)] for node in segment.nodes]
    for index, node in enumerate(segment.nodes):
        if not node.operator.startswith("comm::") or node.operator == WAIT:
            continue
        value = node.inputs[0].value
        for later in range(index + 1, len(segment.nodes)):
            other = segment.nodes[later]
            if other.operator == WAIT and other.inputs[0].value == value:
                size = sizes.elements(node.inputs[0]) * dtype_bytes(node.inputs[0].dtype)
                work_by_node[index] = [Collective(node.operator.removeprefix("comm::"), size, node.inputs[0].dtype, 0)]
                break
            if work_by_node[later]:
                break
    return work_by_node


def _last_product(segment: Segment) -> int:
    """Index of a block's last matrix product: recomputation runs at least everything before it."""
    products = [index for index, node in enumerate(segment.nodes) if node.operator in ("aten::mm", "aten::addmm")]
    return max(products, default=0)


def _read_backwards(graph: OperatorGraph, index: int, batch: int, sequence: int) -> int:
    """Bytes that a forward segment produces and the backward pass of the same block reads."""
    from presim.composition.graph.schema import Origin
    from presim.composition.graph.sizes import read

    candidate: Segment = graph.segments[index]
    if candidate.backward:
        return 0
    used = {
        value.index
        for segment in graph.segments
        if segment.backward and (segment.twin == index or not candidate.name)
        for value in segment.values
        if value.origin is Origin.SEGMENT and value.segment == index
    }
    values = [candidate.values[number] for number in used]
    return sum(read(value.bytes)(batch, sequence) for value in values if value.origin is Origin.OWN)


def _input_bytes(segment: Segment, batch: int, sequence: int) -> int:
    """Bytes that a block receives from the block before it."""
    from presim.composition.graph.schema import Origin
    from presim.composition.graph.sizes import read

    return sum(read(value.bytes)(batch, sequence) for value in segment.values if value.origin is Origin.CARRY)


def _at_least_one(point: Mapping[str, Value], name: str) -> int:
    value = point.get(name, 1)
    return value if isinstance(value, int) and value > 1 else 1


def _product(point: Mapping[str, Value], names: tuple[str, ...]) -> int:
    product = 1
    for name in names:
        product *= _at_least_one(point, name)
    return product
