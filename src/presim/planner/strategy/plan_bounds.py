"""Lower bounds on a plan's step time and memory, computed without composing the plan.

Time: a rank takes at least the work of its own stages (`floors`), and what data parallelism adds to it (`data_floors`).
In a pipeline a rank begins after one micro-batch has passed the ranks before it, and these end after it.

On nodes of different kinds, a rank of each kind has at least the least work of a rank, at the prices of its node; the
wait for other stages counts as on the fastest nodes. Memory is compared with the kind of GPU that has most.

Parts that depend on few knobs are computed once for all plans that share them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from presim.planner.strategy.data_floors import DataFloor, data_floor, reduction_ns
from presim.planner.strategy.floors import Floor, floor_of, graph_key, graph_of_rank
from presim.planner.strategy.plan_memory_bound import memory_bytes
from presim.planner.strategy.stage_shares import StageShares, stage_shares
from presim.planner.trials.point_evaluator import PlanEvaluator, plan
from presim.planner.trials.trial import Figures, Point

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from presim.composition.graph.graph_schema import OperatorGraph
    from presim.composition.plan import Plan
    from presim.hardware.cluster import Cluster

_WHOLE_BACKWARDS = ("gpipe", "1f1b", "interleaved")  # others fill the bubble with gradients of weights
_SHARDED = ("fsdp2", "hsdp")


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
    work_s: float  # work of the rank with the least, without waiting for other stages


class Bounds:
    """Computes bounds for one job's points; keeps the parts that points share."""

    def __init__(self, evaluator: PlanEvaluator) -> None:
        self._evaluator = evaluator
        self._graphs: dict[Hashable, OperatorGraph] = {}
        self._floors: dict[Hashable, Floor] = {}
        self._shares: dict[Hashable, StageShares] = {}
        self._rank_ns: dict[Hashable, NDArray[np.float64]] = {}
        self._data: dict[Hashable, list[DataFloor]] = {}

    def of(self, point: Point) -> Bound:
        """The bound of a legal point.

        Raises:
            InputError: the graph cannot be split this way.
        """
        candidate, cluster = plan(point), self._evaluator.cluster(point)
        bounds = [self._uniform_bound(candidate, view) for view in cluster.views()]
        slowest = max(bounds, key=lambda bound: bound.work_s)
        fastest = min(bounds, key=lambda bound: bound.bound.step_s)
        roomiest = max(bounds, key=lambda bound: bound.bound.capacity_bytes - bound.bound.memory_bytes).bound
        return dataclasses.replace(
            fastest.bound,
            step_s=max(slowest.work_s, fastest.bound.step_s),
            memory_bytes=roomiest.memory_bytes,
            capacity_bytes=roomiest.capacity_bytes,
        )

    def _uniform_bound(self, candidate: Plan, cluster: Cluster) -> _UniformBound:
        """The bound where all nodes are alike."""
        kind = _kind(cluster)
        floor_key = (kind, graph_key(candidate), candidate.recompute_whole)
        floor = self._floor(floor_key, candidate, cluster)
        split = (candidate.pipeline, candidate.virtual, candidate.order, candidate.stages)
        shares = self._stage_shares((floor_key, split), floor.graph, candidate)
        data = self._data_floors((kind, split, _data_key(candidate)), shares, candidate, cluster)
        repeats = candidate.recompute == "full" and not candidate.recompute_blocks
        ranks_ns = self._by_rank((floor_key, split, repeats), floor, shares, repeats)
        micro = candidate.micro_batches(cluster.world_size)
        step_ns, work_ns = _step_ns(candidate, ranks_ns, data, micro * shares.passes)
        least_bytes = memory_bytes(candidate, cluster, floor, shares, micro)
        bound = Bound(
            step_s=step_ns / 1e9,
            memory_bytes=least_bytes + cluster.gpu.context_bytes,
            capacity_bytes=cluster.gpu.memory_bytes,
            tokens_per_step=float(
                micro * candidate.micro_batch * candidate.sequence * candidate.data(cluster.world_size)
            ),
            gpus=cluster.world_size,
            gpu=cluster.gpu.id,
        )
        return _UniformBound(bound, work_ns / 1e9)

    def _floor(self, name: tuple[object, ...], candidate: Plan, cluster: Cluster) -> Floor:
        if name not in self._floors:
            needs_size = candidate.expert > 1 or candidate.passes
            graph_name = (name[0], graph_key(candidate)[: None if needs_size else -2], candidate.data_style == "zero1")
            if graph_name not in self._graphs:
                self._graphs[graph_name] = graph_of_rank(self._evaluator.graph(), candidate, cluster)
            chain = self._evaluator.chain(cluster)
            self._floors[name] = floor_of(self._graphs[graph_name], candidate, cluster, chain)
        return self._floors[name]

    def _stage_shares(self, name: Hashable, graph: OperatorGraph, candidate: Plan) -> StageShares:
        if name not in self._shares:
            self._shares[name] = stage_shares(graph, candidate)
        return self._shares[name]

    def _data_floors(self, name: Hashable, shares: StageShares, candidate: Plan, cluster: Cluster) -> list[DataFloor]:
        """What data parallelism adds to each rank."""
        if name not in self._data:
            chain = self._evaluator.chain(cluster)
            floors: list[DataFloor] = []
            floor_by_parameters: dict[Hashable, DataFloor] = {}
            for rank, stages in enumerate(shares.stages_by_rank):
                parameters = tuple(part for stage in dict.fromkeys(stages) for part in shares.parameters[stage])
                first = shares.parameters[rank] if rank and candidate.order in _WHOLE_BACKWARDS else ()  # it ends last
                if (parameters, first) not in floor_by_parameters:
                    floor = data_floor(parameters, candidate, cluster, chain)
                    tail_ns = floor.tail_ns + reduction_ns(first, candidate, cluster, chain)
                    floor_by_parameters[parameters, first] = dataclasses.replace(floor, tail_ns=tail_ns)
                floors.append(floor_by_parameters[parameters, first])
            self._data[name] = floors
        return self._data[name]

    def _by_rank(self, name: Hashable, floor: Floor, shares: StageShares, repeats: bool) -> NDArray[np.float64]:
        """Time of a micro-batch [rank, (all stages, forward pass of its first stage, backward pass of that)]."""
        if name not in self._rank_ns:
            forward_ns = shares.blocks @ floor.forward_ns
            backward_ns = shares.blocks @ (floor.backward_ns + (floor.again_ns if repeats else 0.0))
            self._rank_ns[name] = np.array(
                [
                    (
                        sum(forward_ns[stage] + backward_ns[stage] for stage in stages),
                        forward_ns[min(stages)],
                        backward_ns[min(stages)],
                    )
                    for stages in shares.stages_by_rank
                ]
            )
        return self._rank_ns[name]


def _step_ns(
    candidate: Plan, ranks_ns: NDArray[np.float64], data: list[DataFloor], passes: float
) -> tuple[float, float]:
    """Least time of a step, and of the rank with the least work in it; ``passes`` of each stage."""
    is_pipeline = candidate.pipeline > 1
    # in a pipeline the first micro-batch starts sums of gradients and does not add to them
    adding_passes = max(0.0, passes - 1) if is_pipeline and candidate.data_style in _SHARDED else passes
    batch_ns, stream_ns, tail_ns = (
        np.array([getattr(floor, name) for floor in data]) for name in ("batch_ns", "stream_ns", "tail_ns")
    )
    work_ns = ranks_ns[:, 0] * passes + batch_ns * adding_passes
    ends_ns = np.maximum(work_ns + tail_ns, stream_ns * passes)
    if is_pipeline and candidate.order in _WHOLE_BACKWARDS:
        fill_ns, drain_ns = (np.concatenate([[0.0], np.cumsum(ranks_ns[:-1, column])]) for column in (1, 2))
        waiting_ns = fill_ns + work_ns + (np.maximum(drain_ns, tail_ns) if candidate.clip else drain_ns)
        ends_ns = np.maximum(ends_ns, waiting_ns)
    return float(ends_ns.max()), float(work_ns.min())


_PARAMETER_FIELDS = ("tensor", "sequence_parallel", "splits_words", "context", "expert", "passes")
_DATA_FIELDS = (*_PARAMETER_FIELDS, "pipeline", "data_style", "shard", "reshard", "keep_last", "separate_ends")


def _data_key(candidate: Plan) -> tuple[object, ...]:
    """What data parallelism depends on, beside the stages."""
    return tuple(getattr(candidate, name) for name in _DATA_FIELDS)


def _kind(cluster: Cluster) -> tuple[object, ...]:
    """What prices of a cluster depend on."""
    return (cluster.gpu.id, cluster.node.id, cluster.fabric.id, cluster.world_size, cluster.gpus_per_node)
