"""A white-box model of NCCL: what its algorithms and protocols would take on the wires at hand; the fastest one wins.

NCCL chooses by a table of its own that aims at the same; what NCCL_ALGO and its kin forbid is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from presim.cost.collectives.algorithms import DIRECT, FORMULAS, Call, Run
from presim.cost.collectives.channels import most_channels
from presim.cost.collectives.constants import fabric_constants, link_constants
from presim.cost.collectives.environment import PROTOCOLS, Tuning, tuning_of
from presim.cost.collectives.experts import price_exchange
from presim.cost.collectives.model import Uncongested
from presim.cost.collectives.placement import Layout, Links, check_kind, exchanged, layout_of, links_of
from presim.cost.price import Origin, Price
from presim.hardware import Cluster
from presim.trace.collective import Collective
from presim.trace.schema import Group

_LOCAL_US = 4.5  # a collective of one rank is a copy (nccl-tests log of one A100, Echo)
_LOCAL_EFFICIENCY = 0.8  # of memory bandwidth, read and written
_FUSED_US = 0.3  # each further call of a coalesced launch. A guess: NCCL enqueues it into the same kernel
_BARRIER_BYTES = 4
_FITTED_RANKS = 8  # of one node; racks that NVLink joins are extrapolated
_BEYOND_FIT = 0.2
_UNKNOWN_HOST = 0.25  # PCIe beyond a pair, where the node does not say what it carries: docs/decisions/collectives.md
_UNKNOWN_RANKS = 0.25  # added to the uncertainty if consecutive ranks were assumed


class Hierarchical(Uncongested):
    """The analytic `NetworkModel`."""

    name = "analytic/hierarchical"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """``environment``: NCCL's variables as the script had them; they come before those of the cluster."""
        self._environment = environment or {}

    def alone(self, collective: Collective, group: Group, cluster: Cluster) -> Price:
        """Duration from the moment all members have arrived, running alone."""
        if collective.routed is not None:
            layout = layout_of(collective, group, cluster)
            return price_exchange(collective, collective.routed, layout, links_of(cluster, layout))
        check_kind(collective)
        tuning = tuning_of(cluster.nccl, self._environment)
        layout = layout_of(collective, group, cluster)
        links = links_of(cluster, layout, tuning)
        if layout.ranks <= 1:
            return _local(collective, links, self.name)
        call = call_of(collective, layout, links, tuning, cluster)
        if collective.splits is not None:
            near, far = exchanged(collective.splits, group, cluster)
            call = dataclasses.replace(call, near=near, far=far)
        run = fastest(call, tuning)
        duration = run.seconds + _FUSED_US * 1e-6 * (max(collective.fused, 1) - 1)
        far_from_fit = _BEYOND_FIT if layout.per_node > _FITTED_RANKS else 0.0
        inside = call.link.uncertainty + (_UNKNOWN_HOST if _shares_host(layout, links) else 0.0)
        width = inside if layout.nodes == 1 else max(inside, call.fabric.uncertainty)
        width = min(width + far_from_fit + (0.0 if layout.known else _UNKNOWN_RANKS), 0.9)
        bound = "latency" if run.latency > duration / 2 else "network"
        return Price(max(1, round(duration * 1e9)), Origin.ANALYTIC, width, self.name, bound)


def _shares_host(layout: Layout, links: Links) -> bool:
    """Whether more than two ranks share PCIe in a node without a known exchange bandwidth."""
    return layout.per_node > 2 and not links.nvlink and not links.exchange_Bps


def call_of(collective: Collective, layout: Layout, links: Links, tuning: Tuning, cluster: Cluster) -> Call:
    """A collective on the links of a cluster, with their constants."""
    size = float(_BARRIER_BYTES if collective.kind == "barrier" else max(collective.bytes, 0))
    return Call(
        kind=collective.kind,
        size=size,
        near=size * (layout.per_node - 1) / layout.ranks,
        far=size * (layout.ranks - layout.per_node) / layout.ranks,
        layout=layout,
        links=links,
        link=link_constants(links.generation, links.nvlink, cluster.collectives),
        fabric=fabric_constants(links.fabric, cluster.collectives),
        channels=most_channels(collective.kind, layout, links, tuning),
    )


def fastest(call: Call, tuning: Tuning) -> Run:
    """The fastest allowed candidate; the ring if nothing is allowed, as in NCCL."""
    allowed = list(candidates(call, tuning)) or list(candidates(call, Tuning()))
    return min(allowed, key=lambda run: (run.seconds, run.latency))


def candidates(call: Call, tuning: Tuning) -> Iterator[Run]:
    """Every algorithm in every protocol that may run."""
    for formula in FORMULAS.values():
        for protocol in range(len(PROTOCOLS)):
            run = formula(call, protocol)
            if run is not None and (call.kind in DIRECT or tuning.allows(call.kind, run.algorithm, protocol)):
                yield run


def _local(collective: Collective, links: Links, name: str) -> Price:
    """One rank: a copy of its own data."""
    size = 0 if collective.kind == "barrier" else max(collective.bytes, 0)
    duration = _LOCAL_US * 1e-6 + 2 * size / (links.memory_Bps * _LOCAL_EFFICIENCY)
    return Price(round(duration * 1e9), Origin.ANALYTIC, 0.5, name, "latency" if size < 1 << 22 else "memory")
