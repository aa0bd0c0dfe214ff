"""Small jobs of collectives on described networks, and their step with different ranks simulated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.options import SimulateOptions
from presim.evaluation.what_if import Changes
from presim.hardware import Cluster, choose_cluster
from presim.trace.builder import TraceBuilder
from presim.trace.grids import Axes, members_of, origin_of
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective, Gemm
from presim.verbs.every_rank import with_every_rank

_MIB = 1 << 20
_WITHOUT_HOST = Options.of(host_factor=0.0, host_time=False)


@dataclasses.dataclass(frozen=True)
class Call:
    """A collective of every group with these axes; sends go to the next member, so the last one only receives."""

    kind: str
    axes: Axes
    MiB: int = 64
    stream: int = 7


@dataclasses.dataclass(frozen=True)
class NetworkJob:
    """A product of matrices on every rank, then collectives on a described network."""

    network: Mapping[str, Any]
    calls: tuple[Call, ...]
    nodes: int = 8
    gpus_per_node: int = 8
    gpu: str = "h100-sxm"
    stages: int = 1  # of a pipeline; one rank of each is simulated

    def cluster(self) -> Cluster:
        """The cluster with its network."""
        cluster = choose_cluster(gpu=self.gpu, nodes=self.nodes, gpus_per_node=self.gpus_per_node)
        return msgspec.structs.replace(cluster, network=dict(self.network))

    def evaluate(self, changes: Changes | None = None) -> Evaluation:
        """The job with one simulated rank for each stage, or more where changes make ranks differ."""
        cluster = self.cluster()
        stage_ranks = cluster.world_size // self.stages
        represented_ranks = {
            first: range(first + 1, first + stage_ranks) for first in range(0, cluster.world_size, stage_ranks)
        }
        traces = [self._trace(rank, cluster.world_size) for rank in represented_ranks]
        return evaluate(
            Job.of(traces, stands_for=represented_ranks), cluster, _WITHOUT_HOST, changes=changes or Changes()
        )

    def step_ns(self, changes: Changes | None = None) -> int:
        """The end of the slowest simulated rank."""
        return max(timeline.makespan_ns for timeline in self.evaluate(changes).timelines.values())

    def step_of_every_rank_ns(self, changes: Changes | None = None) -> int:
        """The step with every rank of the world simulated by itself."""
        options = SimulateOptions(ranks_simulated="all")
        result = with_every_rank(self.evaluate(changes), self.cluster(), options).result
        assert result.every_rank is not None
        return round(result.every_rank.step_time_s * 1e9)

    def _trace(self, rank: int, world_size: int) -> Trace:
        axes = list(dict.fromkeys(call.axes for call in self.calls))
        members = [members_of(origin_of(rank, group_axes), group_axes) for group_axes in axes]
        groups = tuple(Group(str(group_axes), ranks, len(ranks)) for group_axes, ranks in zip(axes, members))
        build = TraceBuilder(Manifest(world_size, rank, self.gpu, self.gpus_per_node, script="", groups=groups))
        build.work(Gemm(m=4096, n=4096, k=4096, batch=1, dtype="bfloat16"), stream=7)
        for call in self.calls:
            group = axes.index(call.axes)
            position = members[group].index(rank)
            peer = {"send": position + 1, "recv": position - 1}.get(call.kind, -1)
            if call.kind not in ("send", "recv") or 0 <= peer < len(members[group]):
                build.work(Collective(call.kind, call.MiB * _MIB, "bfloat16", group, peer=peer), stream=call.stream)
        return build.trace()
