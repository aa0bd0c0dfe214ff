"""The network of a job as a drawing, with the load of its links over the step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.analysis.time.steps import find_steps
from presim.cost.collectives.fabric_traffic import bytes_on_links, has_too_many_flows
from presim.cost.collectives.running import concurrent_groups, sent_by_others
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.exchange import KINDS
from presim.hardware.network.topology import Topology
from presim.hardware.network.topology_plot import kind_of_vertex, layout
from presim.result.step_figures import Link, LinkLoads, Vertex
from presim.trace.collective import Collective
from presim.trace.schema import Kind

Floats = NDArray[np.float64]
MOMENTS = 100  # of the step
MOST_GPUS = 4096  # whose links are loaded
MOST_DRAWN = 512  # GPUs of a drawing
_PERCENT = 100


def link_loads(evaluation: Evaluation) -> LinkLoads:
    """Vertices and links with their bandwidth, and the load of links in each of `MOMENTS` equal parts of the step.

    A load is the bytes that collectives put on a link over what it can carry. A collective's bytes flow evenly while
    it runs; the time in which it waits for late ranks is not part of that. Groups that send as simulated ranks do are
    counted; those of ranks that nobody stands for are not.
    """
    cluster = evaluation.cluster
    if cluster.world_size < 2:
        return LinkLoads("One GPU has no network.")
    if cluster.world_size > MOST_GPUS:
        return LinkLoads(f"Links are loaded up to {MOST_GPUS:,} GPUs; this job has {cluster.world_size:,}.")
    try:
        topology = topology_of(cluster, cluster.network)
    except InputError as error:
        return LinkLoads(f"This network cannot be drawn: {error}")
    span_ns = find_steps(evaluation.priced.trace, evaluation.timeline).steady.span_ns
    loads, left_out = _loads(evaluation, topology, span_ns)
    pairs = _pairs(topology)
    names = [_kind_of_pair(topology, pair) for pair in pairs]
    by_pair = np.stack([loads[list(links)].max(axis=0) for links in pairs.values()])
    by_kind = {name: _percent(by_pair[[other == name for other in names]].max(axis=0)) for name in dict.fromkeys(names)}
    vertices, links = _drawing(topology, pairs, by_pair) if cluster.world_size <= MOST_DRAWN else ([], [])
    return LinkLoads("", *span_ns, cluster.world_size, bool(cluster.network), left_out, by_kind, vertices, links)


@dataclasses.dataclass(frozen=True)
class _Part:
    """The part of the steady step that a moment stands for."""

    edges_ns: Floats

    def shares(self, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> Floats:
        """[moment] How much of calls runs in each part, summed: 1 for a whole call."""
        length = np.maximum(end_ns - start_ns, 1)[:, None]
        done = np.clip((self.edges_ns[None, :] - start_ns[:, None]) / length, 0.0, 1.0).sum(axis=0)
        return np.asarray(np.diff(done), np.float64)


def _loads(evaluation: Evaluation, topology: Topology, span_ns: tuple[int, int]) -> tuple[Floats, list[str]]:
    """[link, moment] utilisation, and collectives that are left out."""
    first, last = span_ns
    part = _Part(np.linspace(first, last, MOMENTS + 1))
    sent = np.zeros((topology.links, MOMENTS))
    left_out: list[str] = []
    for rank, priced in evaluation.ranks.items():
        _add_rank(evaluation, topology, part, sent, left_out, rank, priced)
    capacity = topology.bandwidth_Bps[:, None] * (last - first) / 1e9 / MOMENTS
    return sent / capacity, sorted(set(left_out))


def _add_rank(
    evaluation: Evaluation,
    topology: Topology,
    part: _Part,
    sent: Floats,
    left_out: list[str],
    rank: int,
    priced: PricedTrace,
) -> None:
    """Add what one simulated rank's collectives put on links, its groups' and their sisters' together."""
    trace = priced.trace
    entries = np.flatnonzero(trace.mask(Kind.COLLECTIVE))
    signature_of_entry = trace.columns["signature"][entries]
    for index in np.unique(signature_of_entry).tolist():
        collective = trace.signatures[index]
        if not isinstance(collective, Collective) or not 0 <= collective.group < len(trace.manifest.groups):
            continue
        group = trace.manifest.groups[collective.group]
        if len(group.ranks) < 2 or sent_by_others(collective, group, evaluation.representatives):
            continue
        if _is_counted_elsewhere(group.ranks, rank, evaluation.ranks.keys(), collective.kind):
            continue
        groups = concurrent_groups(collective, group, rank, evaluation.cluster.world_size, evaluation.representatives)
        if collective.kind not in KINDS or has_too_many_flows(collective.kind, groups):
            left_out.append(f"{collective.kind} of {group.name}")
            continue
        link_bytes = bytes_on_links(collective, groups, evaluation.cluster, topology, trace.manifest.nccl)
        calls = entries[signature_of_entry == index]
        shares = part.shares(*_transfers(calls, evaluation.timelines[rank], priced.prices[index].duration_ns))
        sent += link_bytes[:, None] * shares[None, :]


def _is_counted_elsewhere(group_ranks: Sequence[int], rank: int, simulated: Any, kind: str) -> bool:
    """Whether a lower simulated rank of the group counts its collective; messages are counted at their sender."""
    if kind in ("send", "recv", "send_recv"):
        return False
    return min(member for member in group_ranks if member in simulated) != rank


def _transfers(
    calls: NDArray[np.int64], timeline: Timeline, price_ns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and end of calls without the time in which they wait for late ranks."""
    end_ns = timeline.end_ns[calls]
    lasts_ns = price_ns + timeline.slowed_ns[calls]
    return np.maximum(timeline.start_ns[calls], end_ns - lasts_ns), end_ns


def _pairs(topology: Topology) -> dict[tuple[int, int], list[int]]:
    """Links of both directions by their ends, the lower vertex first."""
    pairs: dict[tuple[int, int], list[int]] = {}
    for link, link_ends in enumerate(zip(topology.source.tolist(), topology.target.tolist())):
        pairs.setdefault((min(link_ends), max(link_ends)), []).append(link)
    return pairs


def _kind_of_pair(topology: Topology, pair: tuple[int, int]) -> str:
    return " - ".join(kind_of_vertex(topology.names[vertex]) for vertex in pair)


def _percent(loads: Floats) -> list[int]:
    percent: list[int] = np.rint(loads * _PERCENT).astype(int).tolist()
    return percent


def _drawing(
    topology: Topology, pairs: dict[tuple[int, int], list[int]], by_pair: Floats
) -> tuple[list[Vertex], list[Link]]:
    places = layout(topology)
    vertices = [
        Vertex(topology.names[vertex], kind_of_vertex(topology.names[vertex]), x, y)
        for vertex, (x, y) in sorted(places.items())
    ]
    bandwidth_Bps = topology.bandwidth_Bps
    links: list[Link] = [
        (*pair, float(bandwidth_Bps[numbers].max()), _percent(load))
        for (pair, numbers), load in zip(pairs.items(), by_pair)
        if pair[1] in places
    ]
    return vertices, links
