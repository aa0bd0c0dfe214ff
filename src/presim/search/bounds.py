"""Bounds from the plan alone: the least time and memory that a plan can take, without composing it.

Time: kernels of one stream run one after the other, so a step takes at least what its forward and backward kernels take
together, each at the price that the simulation would use. Memory: every parameter's states lie somewhere in the world,
and what the backward pass reads is alive when the forward pass ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from presim.search.evaluator import Evaluator, plan
from presim.search.trial import Figures, Point, Value

if TYPE_CHECKING:
    from presim.graph.plan import Plan
    from presim.graph.schema import OperatorGraph, Segment
    from presim.hardware.cluster import Cluster

_STATES = {"adamw": 12, "none": 4}  # bytes of a parameter with its states, in fp32; gradients are counted as none
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

    def figures(self) -> Figures:
        """As if it took no more than that."""
        return Figures(
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
    rest_ns: float
    blocks_bytes: int  # what backward reads of all repeated blocks
    block_bytes: int  # of the largest of them
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
        micro = _micro_batches(mine, cluster.world_size)
        spread = _product(point, _SPREAD)
        stages = _at_least_one(point, "pipeline")
        share = (floor.count // stages) / floor.count if floor.count and stages > 1 else 1.0 / stages
        step_ns = micro * (floor.blocks_ns * share + (floor.rest_ns if stages == 1 else 0.0)) / spread
        held = self._states(mine, cluster.world_size) + self._activations(mine, floor, share, stages) // spread
        return Bound(
            step_s=step_ns / 1e9,
            memory_bytes=held + cluster.gpu.context_bytes,
            capacity_bytes=cluster.gpu.memory_bytes,
            tokens_per_step=float(micro * mine.micro_batch * mine.sequence * data),
            gpus=cluster.world_size,
        )

    def _states(self, mine: Plan, world_size: int) -> int:
        return self._evaluator.graph().parameter_count() * _STATES.get(mine.optimizer, 4) // world_size

    def _activations(self, mine: Plan, floor: _Floor, share: float, stages: int) -> int:
        rest = floor.rest_bytes if stages == 1 else 0
        if mine.recompute != "none" or getattr(mine, "offload", "none") not in ("none", "", False, 0):
            return max(floor.block_bytes, rest) if mine.recompute == "full" else 0
        return int(floor.blocks_bytes * share) + rest

    def _floor(self, mine: Plan, cluster: Cluster) -> _Floor:
        from presim.graph.compose import _backend

        backend = _backend(mine, cluster)
        name = (cluster.gpu.id, cluster.world_size, mine.tensor, mine.micro_batch, mine.sequence, backend)
        if name not in self._floors:
            graph = self._graph(mine.tensor, backend)
            self._floors[name] = self._priced(graph, mine.micro_batch, mine.sequence, cluster)
        return self._floors[name]

    def _graph(self, tensor: int, backend: str) -> OperatorGraph:
        from presim.graph.passes import attention, tensor_parallel

        name = (tensor, backend)
        if name not in self._graphs:
            self._graphs[name] = attention.apply(tensor_parallel.apply(self._evaluator.graph(), tensor), backend)
        return self._graphs[name]

    def _priced(self, graph: OperatorGraph, batch: int, sequence: int, cluster: Cluster) -> _Floor:
        from presim.graph.works import Sizes, works

        sizes = Sizes(graph, batch, sequence)
        per_segment = [[work for node in segment.nodes for _, work in works(node, sizes)] for segment in graph.segments]
        signatures = list(dict.fromkeys(work for segment in per_segment for work in segment))
        prices, _ = self._evaluator.chain(cluster).price_all(signatures, (), cluster)
        ns = {signature: price.duration_ns for signature, price in zip(signatures, prices)}
        held = [_read_backwards(graph, index, batch, sequence) for index in range(len(graph.segments))]
        blocks = [index for index, segment in enumerate(graph.segments) if segment.name]
        rest = [index for index, segment in enumerate(graph.segments) if not segment.name]
        times = [sum(ns[work] for work in segment) for segment in per_segment]
        return _Floor(
            blocks_ns=float(sum(times[index] * graph.segments[index].count for index in blocks)),
            rest_ns=float(sum(times[index] for index in rest)),
            blocks_bytes=sum(held[index] * graph.segments[index].count for index in blocks),
            block_bytes=max((held[index] for index in blocks), default=0),
            rest_bytes=sum(held[index] for index in rest),
            count=sum(segment.count for segment in graph.segments if segment.name and not segment.backward),
        )


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


def _micro_batches(mine: Plan, world_size: int) -> int:
    counted = getattr(mine, "micro_batches", None)
    return int(counted(world_size)) if counted is not None else 1


def _at_least_one(point: Mapping[str, Value], name: str) -> int:
    value = point.get(name, 1)
    return value if isinstance(value, int) and value > 1 else 1


def _product(point: Mapping[str, Value], names: tuple[str, ...]) -> int:
    product = 1
    for name in names:
        product *= _at_least_one(point, name)
    return product
