"""Heterogeneous clusters: groups of different nodes, and failed links.

Each rank is priced on its own nodes and links. The result names the slowest group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from presim.changes import Changes
from presim.cost.collectives.model import Transfer, first_answers
from presim.cost.collectives.models import collective_models
from presim.cost.price import PricedTrace
from presim.engine.options import Options
from presim.hardware import Cluster
from presim.hardware.cluster import NodeGroup
from presim.hardware.host import host_factor
from presim.result import Rank
from presim.trace.collective import Collective
from presim.trace.schema import Trace
from presim.units import seconds

_SAME = 1e-3  # times that differ by less are the same
_NOTABLE = 0.01  # of the step: smaller differences between groups are not reported


@dataclasses.dataclass(frozen=True)
class Views:
    """A cluster as each of its ranks sees it, with what-if changes applied."""

    cluster: Cluster
    changes: Changes
    known: dict[Hashable, Cluster] = dataclasses.field(default_factory=dict)

    def of(self, rank: int) -> Cluster:
        """The cluster with all nodes like the rank's own; the same object for all ranks of a group."""
        group = self.cluster.group_of(rank)
        name = None if group is None else group.name
        if name not in self.known:
            self.known[name] = self.changes.cluster(self.cluster.as_seen_by(rank))
        return self.known[name]

    def on_own_host(self, trace: Trace, given: Options, chosen: Options, *, undisturbed: bool) -> Trace:
        """The trace with host time scaled to its rank's node, if that differs from the reported rank's."""
        manifest = trace.manifest
        if given.host_factor is not None or not self.cluster.groups or manifest.measured is not None:
            return trace
        server = self.of(manifest.rank).node.host_factor
        own = host_factor(manifest.reference_host, manifest.host_probe_ns, server, undisturbed=undisturbed)
        if not chosen.host_factor or own == chosen.host_factor:
            return trace
        host_ns = np.rint(trace.columns["host_ns"].astype(np.float64) * (own / chosen.host_factor)).astype(np.int64)
        return dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})


def apart_by_group(cluster: Cluster) -> dict[int, str]:
    """The group of each rank's node, by rank; ranks in no group are left out."""
    return {
        rank: group.name
        for group in cluster.groups
        for rank in range(
            group.first_node * cluster.gpus_per_node, (group.first_node + group.nodes) * cluster.gpus_per_node
        )
    }


def apart(traces: Sequence[Trace], cluster: Cluster, changes: Changes) -> dict[int, tuple[object, ...]]:
    """By rank, its group of nodes and what failed links do to its collectives; ranks that are as most are left out."""
    by_group = apart_by_group(cluster)
    by_link = apart_by_link(traces, changes.cluster(cluster) if changes.failed else cluster)
    return {rank: (by_group.get(rank), by_link.get(rank)) for rank in sorted({*by_group, *by_link})}


def apart_by_link(traces: Sequence[Trace], cluster: Cluster) -> dict[int, tuple[object, ...]]:
    """By rank, the times of collectives that failed links slow down for some ranks only; may be empty."""
    if not cluster.network.get("failed"):
        return {}
    from presim.cost.collectives.contended import seconds_of_sisters

    times: dict[int, list[object]] = {}
    for trace in traces:
        groups = trace.manifest.groups
        for index, one in enumerate(trace.signatures):
            if not isinstance(one, Collective) or not 0 <= one.group < len(groups):
                continue
            found = seconds_of_sisters(one, groups[one.group], cluster)
            if not found or max(found.values()) <= (1 + _SAME) * min(found.values()):
                continue
            for ranks, took in found.items():
                for rank in ranks:
                    times.setdefault(rank, []).append((trace.manifest.rank, index, float(f"{took:.3g}")))
    return {rank: tuple(each) for rank, each in times.items()}


def slowed_collectives(priced: Mapping[int, PricedTrace], views: Views) -> list[str]:
    """A sentence on the collectives that failed links slow down; none without failures."""
    failed = views.changes.failed
    if not failed:
        return []
    before_failing = dataclasses.replace(views.changes, failed=(), alone=False)
    worst: tuple[float, str, int] = (0.0, "", 0)
    touched = 0
    for rank, one in sorted(priced.items()):
        groups = one.trace.manifest.groups
        whole = before_failing.cluster(views.cluster.as_seen_by(rank))
        model = collective_models(whole, one.trace.manifest.nccl)
        longest = 0.0
        together = one.fabric.together_ns if one.fabric else tuple(price.duration_ns for price in one.prices)
        for signature, taken_ns in zip(one.trace.signatures, together, strict=True):
            if not isinstance(signature, Collective) or not 0 <= signature.group < len(groups):
                continue
            group = groups[signature.group]
            before = first_answers(model, [Transfer(signature, group)], whole)[0]
            if before is not None and taken_ns > (1 + _SAME) * before.duration_ns:
                longer = taken_ns / before.duration_ns - 1
                longest = max(longest, longer)
                worst = max(worst, (longer, f"{signature.kind} over {group.size} ranks of {group.name!r}", rank))
        touched += longest > 0
    if not touched:
        return ["The failure slows down no collective."]
    return [
        f"The failure slows down collectives of {touched} of {len(priced)} simulated ranks, most of all the "
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
    found = [f"The cluster has {len(named)} groups of nodes: {names}. Each rank is priced on its own group's hardware."]
    work: dict[str, Rank] = {}
    for rank in ranks:
        name = name_of(cluster, rank.rank)
        if name not in work or _work_s(rank) > _work_s(work[name]):
            work[name] = rank
    if len(work) > 1:
        slowest, *_, fastest = sorted(work.items(), key=lambda item: (-_work_s(item[1]), item[0]))
        more = _work_s(slowest[1]) - _work_s(fastest[1])
        if more > _NOTABLE * slowest[1].step_time_s:
            found.append(
                f"{slowest[0]} is the slowest: {seconds(_work_s(slowest[1]))} of work in a step, {seconds(more)} "
                f"more than {fastest[0]}. The others wait for it at collectives."
            )
    return found


def _nodes(group: NodeGroup) -> str:
    last = group.first_node + group.nodes - 1
    return f"node {last}" if group.nodes == 1 else f"nodes {group.first_node} to {last}"


def name_of(cluster: Cluster, rank: int) -> str:
    """The name of the rank's group for a sentence."""
    group = cluster.group_of(rank)
    return "The rest" if group is None else f"Group {group.name!r}"


def tightest(priced: Mapping[int, PricedTrace], views: Views, fullest: int, reserved: Mapping[int, int]) -> int:
    """The rank with the least free memory for its GPU's size; on equal GPUs the ``fullest``."""
    if not views.cluster.groups or priced[fullest].trace.manifest.exit == "out_of_memory":
        return fullest
    return max(priced, key=lambda rank: (reserved[rank] / views.of(rank).gpu.memory_bytes, -rank))


def _work_s(rank: Rank) -> float:
    return rank.compute_s + rank.host_bound_s
