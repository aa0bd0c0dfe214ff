"""Heterogeneous clusters: groups of different nodes, and failed links.

Each rank is priced on its own nodes and links. The result names the slowest group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from presim.cost.collectives.network_model import Transfer, first_answers
from presim.cost.collectives.network_models import collective_models
from presim.cost.price import PricedTrace
from presim.engine.simulation_options import Options
from presim.evaluation.what_if import Changes
from presim.hardware import Cluster
from presim.hardware.cluster import NodeGroup
from presim.hardware.host import host_factor
from presim.result import Rank
from presim.trace.collective import Collective
from presim.trace.schema import Trace
from presim.units import seconds

_TOLERANCE = 1e-3  # times that differ by less are the same
_NOTABLE = 0.01  # of the step: smaller differences between groups are not reported


@dataclasses.dataclass(frozen=True)
class Views:
    """A cluster as each of its ranks sees it, with what-if changes applied."""

    cluster: Cluster
    changes: Changes
    clusters_by_group: dict[Hashable, Cluster] = dataclasses.field(default_factory=dict)

    def of(self, rank: int) -> Cluster:
        """The cluster with all nodes like the rank's own; the same object for all ranks of a group."""
        group = self.cluster.group_of(rank)
        name = None if group is None else group.name
        if name not in self.clusters_by_group:
            self.clusters_by_group[name] = self.changes.changed_cluster(self.cluster.as_seen_by(rank))
        return self.clusters_by_group[name]

    def on_own_host(
        self, trace: Trace, requested_options: Options, engine_options: Options, *, undisturbed: bool
    ) -> Trace:
        """The trace with host time scaled to its rank's node, if that differs from the reported rank's."""
        manifest = trace.manifest
        if requested_options.host_factor is not None or not self.cluster.groups or manifest.measured is not None:
            return trace
        server = self.of(manifest.rank).node.host_factor
        rank_factor = host_factor(manifest.reference_host, manifest.host_probe_ns, server, undisturbed=undisturbed)
        if not engine_options.host_factor or rank_factor == engine_options.host_factor:
            return trace
        host_ns = np.rint(
            trace.columns["host_ns"].astype(np.float64) * (rank_factor / engine_options.host_factor)
        ).astype(np.int64)
        return dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})


def group_by_rank(cluster: Cluster) -> dict[int, str]:
    """The group of each rank's node, by rank; ranks in no group are left out."""
    return {
        rank: group.name
        for group in cluster.groups
        for rank in range(
            group.first_node * cluster.gpus_per_node, (group.first_node + group.nodes) * cluster.gpus_per_node
        )
    }


def differing_ranks(traces: Sequence[Trace], cluster: Cluster, changes: Changes) -> dict[int, tuple[object, ...]]:
    """By rank, its group of nodes and its collectives' times on failed links; only ranks that have either."""
    by_group = group_by_rank(cluster)
    by_link = link_times_by_rank(traces, changes.changed_cluster(cluster) if changes.failed else cluster)
    return {rank: (by_group.get(rank), by_link.get(rank)) for rank in sorted({*by_group, *by_link})}


def link_times_by_rank(traces: Sequence[Trace], cluster: Cluster) -> dict[int, tuple[object, ...]]:
    """By rank, the times of collectives that failed links slow down for some ranks only; may be empty."""
    if not cluster.network.get("failed"):
        return {}
    from presim.cost.collectives.fabric_traffic import seconds_of_sisters

    times: dict[int, list[object]] = {}
    for trace in traces:
        groups = trace.manifest.groups
        for index, signature in enumerate(trace.signatures):
            if not isinstance(signature, Collective) or not 0 <= signature.group < len(groups):
                continue
            seconds_by_ranks = seconds_of_sisters(signature, groups[signature.group], cluster)
            if not seconds_by_ranks or max(seconds_by_ranks.values()) <= (1 + _TOLERANCE) * min(
                seconds_by_ranks.values()
            ):
                continue
            for ranks, duration_s in seconds_by_ranks.items():
                for rank in ranks:
                    times.setdefault(rank, []).append((trace.manifest.rank, index, float(f"{duration_s:.3g}")))
    return {rank: tuple(rank_times) for rank, rank_times in times.items()}


def slowed_collectives(priced: Mapping[int, PricedTrace], views: Views) -> list[str]:
    """A sentence on the collectives that failed links slow down; none without failures."""
    failed = views.changes.failed
    if not failed:
        return []
    before_failing = dataclasses.replace(views.changes, failed=(), isolated_groups=False)
    worst: tuple[float, str, int] = (0.0, "", 0)
    num_slowed_ranks = 0
    for rank, priced_trace in sorted(priced.items()):
        groups = priced_trace.trace.manifest.groups
        healthy_cluster = before_failing.changed_cluster(views.cluster.as_seen_by(rank))
        model = collective_models(healthy_cluster, priced_trace.trace.manifest.nccl)
        largest_slowdown = 0.0
        contended_ns = (
            priced_trace.fabric.together_ns
            if priced_trace.fabric
            else tuple(price.duration_ns for price in priced_trace.prices)
        )
        for signature, duration_ns in zip(priced_trace.trace.signatures, contended_ns, strict=True):
            if not isinstance(signature, Collective) or not 0 <= signature.group < len(groups):
                continue
            group = groups[signature.group]
            healthy_price = first_answers(model, [Transfer(signature, group)], healthy_cluster)[0]
            if healthy_price is not None and duration_ns > (1 + _TOLERANCE) * healthy_price.duration_ns:
                slowdown = duration_ns / healthy_price.duration_ns - 1
                largest_slowdown = max(largest_slowdown, slowdown)
                worst = max(worst, (slowdown, f"{signature.kind} over {group.size} ranks of {group.name!r}", rank))
        num_slowed_ranks += largest_slowdown > 0
    if not num_slowed_ranks:
        return ["The failure slows down no collective."]
    return [
        f"The failure slows down collectives of {num_slowed_ranks} of {len(priced)} simulated ranks, most of all the "
        f"{worst[1]} of rank {worst[2]}, by {worst[0]:.0%}."
    ]


def group_notes(cluster: Cluster, ranks: Sequence[Rank]) -> list[str]:
    """Sentences on the groups of nodes and the slowest of them; none if all nodes are alike."""
    if not cluster.groups:
        return []
    claimed = sum(group.nodes for group in cluster.groups)
    named = [
        f"{group.name!r} ({_nodes(group)}, {group.nodes * cluster.gpus_per_node} {group.gpu.id})"
        for group in cluster.groups
    ]
    if claimed < cluster.nodes:
        named.append(f"the rest ({(cluster.nodes - claimed) * cluster.gpus_per_node} {cluster.gpu.id})")
    names = ", ".join(named)
    notes = [f"The cluster has {len(named)} groups of nodes: {names}. Each rank is priced on its own group's hardware."]
    work: dict[str, Rank] = {}
    for rank in ranks:
        name = name_of(cluster, rank.rank)
        if name not in work or _work_s(rank) > _work_s(work[name]):
            work[name] = rank
    if len(work) > 1:
        slowest, *_, fastest = sorted(work.items(), key=lambda item: (-_work_s(item[1]), item[0]))
        difference_s = _work_s(slowest[1]) - _work_s(fastest[1])
        if difference_s > _NOTABLE * slowest[1].step_time_s:
            notes.append(
                f"{slowest[0]} is the slowest: {seconds(_work_s(slowest[1]))} of work in a step, "
                f"{seconds(difference_s)} more than {fastest[0]}. The others wait for it at collectives."
            )
    return notes


def _nodes(group: NodeGroup) -> str:
    last = group.first_node + group.nodes - 1
    return f"node {last}" if group.nodes == 1 else f"nodes {group.first_node} to {last}"


def name_of(cluster: Cluster, rank: int) -> str:
    """The name of the rank's group for a sentence."""
    group = cluster.group_of(rank)
    return "The rest" if group is None else f"Group {group.name!r}"


def tightest(priced: Mapping[int, PricedTrace], views: Views, fullest: int, reserved: Mapping[int, int]) -> int:
    """The rank with the largest share of its GPU's memory reserved; ``fullest`` if all GPUs are equal."""
    if not views.cluster.groups or priced[fullest].trace.manifest.exit == "out_of_memory":
        return fullest
    return max(priced, key=lambda rank: (reserved[rank] / views.of(rank).gpu.memory_bytes, -rank))


def _work_s(rank: Rank) -> float:
    return rank.compute_s + rank.host_bound_s
