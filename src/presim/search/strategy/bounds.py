"""Bounds from the plan alone: the least time and memory that a plan can take, without composing it.

Time: kernels of one stream run one after the other. A step takes at least what its forward and backward kernels take
together, each at the price that the simulation would use, with the all-reduces of tensor parallelism that the next
kernel waits for. The last rank of a pipeline begins when a micro-batch has passed the others. Memory: every parameter's
states lie somewhere in the world, and what the backward pass reads is alive when the forward pass ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from presim.search.trials.evaluator import Evaluator, plan
from presim.search.trials.trial import Figures, Point, Value

if TYPE_CHECKING:
    from presim.compose.plan import Plan
    from presim.graph.schema import OperatorGraph, Segment
    from presim.graph.works import Sizes
    from presim.hardware.cluster import Cluster
    from presim.trace.signatures import Signature

# Bytes of a parameter with its states, by what data-parallel ranks share: in each of them, and spread over all of them.
# Gradients are counted as none, and what tensor parallelism copies as split.
_STATES = {"fsdp2": (0, 12), "hsdp": (0, 12), "ddp": (6, 0), "zero1": (2, 12)}
_ADAM = 3  # of an fp32 parameter with its two moments, what is left without an optimizer
# Degrees that spread the work of a micro-batch over ranks, where the floor below does not split the graph itself.
_SPREAD = ("context", "expert", "expert_tensor")


@dataclasses.dataclass(frozen=True)
class Bound:
    """What a plan takes at least."""

    step_s: float
    memory_bytes: int  # what the allocator and the driver's context hold
    capacity_bytes: int
    tokens_per_step: float
    gpus: int
    gpu: str

    def figures(self) -> Figures:
        """As if it took no more than that."""
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
class _Floor:
    """Of one micro-batch on one of the tensor-parallel ranks."""

    blocks_ns: float  # kernels of the repeated blocks, forward and backward
    again_ns: float  # of their recomputation
    rest_ns: float
    blocks_bytes: int  # what backward reads of all repeated blocks
    block_bytes: int  # of the largest of them
    inputs_bytes: int  # what enters repeated blocks, all of them
    rest_bytes: int
    count: int  # repeated blocks


class Bounds:
    """Bounds of one job's points; what depends on fewer knobs is kept."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._graphs: dict[tuple[Any, ...], OperatorGraph] = {}
        self._floors: dict[tuple[Any, ...], _Floor] = {}

    def of(self, point: Point) -> Bound:
        """What a legal point takes at least.

        Raises:
            InputError: the graph cannot be split so.
        """
        mine, cluster = plan(point), self._evaluator.cluster(point)
        floor = self._floor(mine, cluster)
        data = mine.data(cluster.world_size)
        micro = mine.micro_batches(cluster.world_size)
        spread = _product(point, _SPREAD) * (mine.tensor if mine.sequence_parallel else 1)
        stages = _at_least_one(point, "pipeline")
        least = mine.virtual * (floor.count // (stages * mine.virtual))  # blocks of the smallest rank
        if mine.stages:
            least = min(sum(mine.stages[place::stages]) for place in range(stages))
        share = least / floor.count if floor.count and stages > 1 else 1.0 / stages
        blocks_ns = floor.blocks_ns + (floor.again_ns if mine.recompute == "full" else 0.0)
        own_ns = blocks_ns * share + (floor.rest_ns if stages == 1 else 0.0)
        chunks = stages * mine.virtual
        bubble_ns = (stages - 1) * blocks_ns * (floor.count // chunks / floor.count if floor.count else 0.0)
        step_ns = (micro * own_ns + (0.0 if mine.stages else bubble_ns)) / spread
        held = self._states(mine, cluster.world_size) + self._activations(mine, floor, share, micro) // spread
        return Bound(
            step_s=step_ns / 1e9,
            memory_bytes=held + cluster.gpu.context_bytes,
            capacity_bytes=cluster.gpu.memory_bytes,
            tokens_per_step=float(micro * mine.micro_batch * mine.sequence * data),
            gpus=cluster.world_size,
            gpu=cluster.gpu.id,
        )

    def _states(self, mine: Plan, world_size: int) -> int:
        count = self._evaluator.graph().parameter_count()
        copied, spread = _STATES.get(mine.data_style, (0, 0))
        least = count * copied // (mine.tensor * mine.pipeline) + count * spread // world_size
        if mine.data_style == "hsdp":
            least = count * spread // (mine.tensor * mine.pipeline * max(mine.shard, 1))
        return least if mine.optimizer == "adamw" else least // _ADAM

    def _activations(self, mine: Plan, floor: _Floor, share: float, micro: int) -> int:
        """Of the first stage, which has as many micro-batches in flight as there are stages."""
        rest = floor.rest_bytes if mine.pipeline == 1 else 0
        flying = share * min(mine.pipeline, micro)
        if mine.recompute == "none":
            return int(floor.blocks_bytes * flying) + rest
        return int(floor.inputs_bytes * flying) + max(floor.block_bytes, rest) if mine.recompute == "full" else 0

    def _floor(self, mine: Plan, cluster: Cluster) -> _Floor:
        backend = mine.attention
        if backend == "auto":
            backend = "cudnn" if cluster.gpu.compute_major >= 9 else "flash"
        name = (
            cluster.gpu.id,
            cluster.node.id,
            cluster.fabric.id,
            cluster.world_size,
            mine.tensor,
            mine.micro_batch,
            mine.sequence,
            backend,
        )
        if name not in self._floors:
            graph = self._graph(mine.tensor, backend)
            self._floors[name] = self._priced(graph, mine, cluster)
        return self._floors[name]

    def _graph(self, tensor: int, backend: str) -> OperatorGraph:
        from presim.passes import attention, tensor_parallel

        name = (tensor, backend)
        if name not in self._graphs:
            self._graphs[name] = attention.apply(tensor_parallel.apply(self._evaluator.graph(), tensor), backend)
        return self._graphs[name]

    def _priced(self, graph: OperatorGraph, mine: Plan, cluster: Cluster) -> _Floor:
        from presim.graph.works import Sizes
        from presim.trace.schema import Group

        batch, sequence = mine.micro_batch, mine.sequence
        sizes = Sizes(graph, batch, sequence)
        per_segment = [_serial(segment, sizes) for segment in graph.segments]
        signatures = list(dict.fromkeys(work for segment in per_segment for works in segment for work in works))
        tensor = Group("tensor", tuple(range(mine.tensor)), mine.tensor)
        prices, _ = self._evaluator.chain(cluster).price_all(signatures, (tensor,), cluster)
        ns = {signature: price.duration_ns for signature, price in zip(signatures, prices)}
        held = [_read_backwards(graph, index, batch, sequence) for index in range(len(graph.segments))]
        blocks = [index for index, segment in enumerate(graph.segments) if segment.name]
        rest = [index for index, segment in enumerate(graph.segments) if not segment.name]
        times = [[sum(ns[work] for work in works) for works in segment] for segment in per_segment]
        count = [segment.count for segment in graph.segments]
        again = {index: _last_product(graph.segments[index]) for index in blocks if not graph.segments[index].backward}
        return _Floor(
            blocks_ns=float(sum(sum(times[index]) * count[index] for index in blocks)),
            again_ns=float(sum(sum(times[index][:end]) * count[index] for index, end in again.items())),
            rest_ns=float(sum(sum(times[index]) for index in rest)),
            blocks_bytes=sum(held[index] * count[index] for index in blocks),
            block_bytes=max((held[index] for index in blocks), default=0),
            inputs_bytes=sum(_entering(graph.segments[index], batch, sequence) * count[index] for index in again),
            rest_bytes=sum(held[index] for index in rest),
            count=sum(count[index] for index in again),
        )


def _serial(segment: Segment, sizes: Sizes) -> list[list[Signature]]:
    """Of each node the work that no other of the segment runs beside."""
    from presim.graph.works import works
    from presim.passes.collectives import WAIT
    from presim.trace.dtypes import dtype_bytes
    from presim.trace.signatures import Collective

    found: list[list[Signature]] = [[work for _, work in works(node, sizes)] for node in segment.nodes]
    for place, node in enumerate(segment.nodes):
        if not node.operator.startswith("comm::") or node.operator == WAIT:
            continue
        value = node.inputs[0].value
        for later in range(place + 1, len(segment.nodes)):
            other = segment.nodes[later]
            if other.operator == WAIT and other.inputs[0].value == value:
                size = sizes.elements(node.inputs[0]) * dtype_bytes(node.inputs[0].dtype)
                found[place] = [Collective(node.operator.removeprefix("comm::"), size, node.inputs[0].dtype, 0)]
                break
            if found[later]:
                break
    return found


def _last_product(segment: Segment) -> int:
    """The last product of a block: recomputation runs at least what comes before it."""
    products = [place for place, node in enumerate(segment.nodes) if node.operator in ("aten::mm", "aten::addmm")]
    return max(products, default=0)


def _read_backwards(graph: OperatorGraph, index: int, batch: int, sequence: int) -> int:
    """Bytes that a forward segment makes and the backward pass of the same block reads."""
    from presim.graph.schema import Origin
    from presim.graph.sizes import read

    mine: Segment = graph.segments[index]
    if mine.backward:
        return 0
    used = {
        value.index
        for segment in graph.segments
        if segment.backward and (segment.twin == index or not mine.name)
        for value in segment.values
        if value.origin is Origin.SEGMENT and value.segment == index
    }
    own = [mine.values[place] for place in used if mine.values[place].origin is Origin.OWN]
    return sum(read(value.bytes)(batch, sequence) for value in own)


def _entering(segment: Segment, batch: int, sequence: int) -> int:
    """Bytes that a block takes over from the one before."""
    from presim.graph.schema import Origin
    from presim.graph.sizes import read

    return sum(read(value.bytes)(batch, sequence) for value in segment.values if value.origin is Origin.CARRY)


def _at_least_one(point: Mapping[str, Value], name: str) -> int:
    value = point.get(name, 1)
    return value if isinstance(value, int) and value > 1 else 1


def _product(point: Mapping[str, Value], names: tuple[str, ...]) -> int:
    product = 1
    for name in names:
        product *= _at_least_one(point, name)
    return product
