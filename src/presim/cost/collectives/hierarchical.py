"""White-box model of NCCL: the time of the algorithm and protocol that NCCL chooses, on the given links.

The choice is NCCL's or RCCL's own (`presim.cost.collectives.library_choice`), also where it is not the fastest. The
rules of accelerators' libraries are not known: they take the fastest candidate. Algorithms that NCCL_ALGO and similar
variables forbid are excluded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from presim.cost.collectives.algorithms import DIRECT, FORMULAS, AlgorithmRun, CollectiveCall
from presim.cost.collectives.channels import most_channels
from presim.cost.collectives.choice_steps import steps_above
from presim.cost.collectives.collective_constants import fabric_constants, link_constants
from presim.cost.collectives.expert_exchange import price_exchange
from presim.cost.collectives.group_placement import (
    ACCELERATOR,
    GroupPlacement,
    Links,
    bytes_within_and_between_nodes,
    check_kind,
    layout_of,
    links_of,
)
from presim.cost.collectives.library_choice import choose
from presim.cost.collectives.nccl_choice import LL, SIMPLE, AlgorithmChoice, CollectiveQuestion
from presim.cost.collectives.nccl_environment import PROTOCOLS, Tuning, tuning_of
from presim.cost.collectives.network_model import Uncongested
from presim.cost.collectives.rccl_choice import has_rules as rccl_has_rules
from presim.cost.price import Origin, Price
from presim.hardware import Cluster
from presim.hardware.constants import value
from presim.trace.collective import Collective
from presim.trace.schema import Group

# aws-ofi-nccl and Google's gpudirect-tcpxo ship tuner plug-ins (NCCL_TUNER_PLUGIN).
_OTHER_LIBRARIES = ("cdna", ACCELERATOR)  # generations that do not run NCCL; RCCL has rules for some
_FABRICS_WITH_TUNER = ("efa", "tcpxo")
_FORMULA_BY_ALGORITHM = {"nvlstree": "nvls", "collnetdirect": "collnet"}
_LOCAL_US = value("nccl.local_us")
_LOCAL_EFFICIENCY = value("nccl.local_memory_share")
_FUSED_US = value("nccl.coalesced_call_us")
_BARRIER_BYTES = 4
_FITTED_RANKS = 8  # ranks of one node in the fits; NVLink domains of racks are extrapolated
# Added to the uncertainty:
_EXTRAPOLATED = 0.2  # more ranks in a domain than in the fits
_UNKNOWN_HOST = 0.25  # more than two GPUs on PCIe, unknown exchange bandwidth: docs/decisions/collectives.md
_REDUCED_BETWEEN = 0.3  # reduction by the switches between nodes, of which no measurement was fitted
_OTHER_BUFFERS = 0.2  # buffers of another size, of which no measurement was fitted
_UNKNOWN_RANKS = 0.25  # consecutive ranks were assumed


class Hierarchical(Uncongested):
    """The analytic `NetworkModel`."""

    name = "analytic/hierarchical"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """``environment``: NCCL's variables of the script. They take precedence over those of the cluster."""
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
            node_bytes, other_node_bytes = bytes_within_and_between_nodes(collective.splits, group, cluster)
            splits = collective.splits
            own_bytes = float(max(splits.sent[splits.own], splits.received[splits.own]))
            call = dataclasses.replace(
                call, node_bytes=node_bytes, other_node_bytes=other_node_bytes, own_bytes=own_bytes
            )
        run = chosen_run(call, tuning)
        duration = run.seconds + _FUSED_US * 1e-6 * (max(collective.fused, 1) - 1)
        far_from_fit = _EXTRAPOLATED if layout.per_node > _FITTED_RANKS else 0.0
        inside = call.link.uncertainty + (_UNKNOWN_HOST if _shares_host(layout, links) else 0.0)
        width = inside if layout.nodes == 1 else max(inside, call.fabric.uncertainty) + cluster.fabric.port_share_spread
        width = min(width + far_from_fit + (0.0 if layout.has_known_ranks else _UNKNOWN_RANKS), 0.9)
        width = min(width + (_OTHER_BUFFERS if call.buffers != 1.0 else 0.0), 0.9)
        width = min(width + (_REDUCED_BETWEEN if run.algorithm == "collnetdirect" else 0.0), 0.9)
        bound = "latency" if run.latency > duration / 2 else "network"
        return Price(max(1, round(duration * 1e9)), Origin.ANALYTIC, width, self.name, bound)

    def port_traffic(self, collective: Collective, group: Group, cluster: Cluster) -> float:
        """What a group's nodes send to each other, relative to a ring: half of it if a tree joins two nodes."""
        if collective.kind != "all_reduce":
            return 1.0
        tuning = tuning_of(cluster.nccl, self._environment)
        layout = layout_of(collective, group, cluster)
        call = call_of(collective, layout, links_of(cluster, layout, tuning), tuning, cluster)
        of_ring = 2 * call.size * (layout.ranks - 1) / layout.ranks
        return min(chosen_run(call, tuning).between / of_ring, 1.0) if layout.nodes == 2 and of_ring else 1.0


def _shares_host(layout: GroupPlacement, links: Links) -> bool:
    """Whether more than two ranks share PCIe in a node without a known exchange bandwidth."""
    return layout.per_node > 2 and not links.nvlink and not links.exchange_Bps


def call_of(
    collective: Collective, layout: GroupPlacement, links: Links, tuning: Tuning, cluster: Cluster
) -> CollectiveCall:
    """A collective on the links of a cluster, with their constants."""
    size = float(_BARRIER_BYTES if collective.kind == "barrier" else max(collective.bytes, 0))
    return CollectiveCall(
        kind=collective.kind,
        size=size,
        node_bytes=size * (layout.per_node - 1) / layout.ranks,
        other_node_bytes=size * (layout.ranks - layout.per_node) / layout.ranks,
        own_bytes=size / layout.ranks,
        layout=layout,
        links=links,
        link=link_constants(links.generation, links.nvlink, cluster.collectives),
        fabric=fabric_constants(links.fabric, cluster.collectives),
        channels=most_channels(collective.kind, layout, links, tuning),
        version=str(cluster.collectives.get("nccl_version", "")),
        threads_share=min(tuning.threads / 512, 1.0) if tuning.threads else 1.0,
        buffers=tuning.buffer_bytes / Tuning().buffer_bytes,
    )


def chosen_run(call: CollectiveCall, tuning: Tuning) -> AlgorithmRun:
    """The run by the algorithm and protocol that the library chooses.

    It takes no longer, and sends no more between nodes, than that of any larger size.
    """
    choice = library_choice(call, tuning)
    run = run_of(call, tuning, choice)
    if choice is None:
        return run
    for step in steps_above(question_of(call), tuning):
        larger = run_of(_of_size(call, step.first_bytes), tuning, step.choice)
        seconds, between = min(run.seconds, larger.seconds), min(run.between, larger.between)
        run = dataclasses.replace(run, seconds=seconds, latency=min(run.latency, seconds), between=between)
    return run


def _of_size(call: CollectiveCall, size: float) -> CollectiveCall:
    """The call with other bytes, of a kind whose ranks all have the same share."""
    return dataclasses.replace(call, size=float(size), own_bytes=size / call.layout.ranks)


def run_of(call: CollectiveCall, tuning: Tuning, choice: AlgorithmChoice | None) -> AlgorithmRun:
    """The run by a choice; the fastest candidate where there is none, or no formula for it."""
    if choice is not None:
        reduces_between = choice.algorithm == "nvls" and call.layout.nodes > 1
        name = "collnet" if reduces_between else _FORMULA_BY_ALGORITHM.get(choice.algorithm, choice.algorithm)
        formula = FORMULAS[name]
        run = formula(dataclasses.replace(call, channels=choice.filled_channels), choice.protocol)
        if run is not None:
            return run
    return fastest(call, tuning)


def library_choice(call: CollectiveCall, tuning: Tuning) -> AlgorithmChoice | None:
    """The library's choice, which does not depend on our constants; None: its rules are not known.

    These are RCCL on AMD's GPUs before MI300X, accelerators' own libraries, and fabrics whose plug-ins bring a tuner of
    their own, which NCCL asks first.
    """
    has_tuner = call.layout.nodes > 1 and call.links.fabric in _FABRICS_WITH_TUNER
    generation = call.links.generation
    has_rules = rccl_has_rules(generation) or not generation.startswith(_OTHER_LIBRARIES)
    return choose(question_of(call), tuning) if has_rules and not has_tuner else None


def question_of(call: CollectiveCall) -> CollectiveQuestion:
    """A call as NCCL's rules see it."""
    return CollectiveQuestion(call.kind, call.size, call.layout, call.links, call.version)


def fastest(call: CollectiveCall, tuning: Tuning) -> AlgorithmRun:
    """The fastest allowed candidate; the ring if nothing is allowed, as in NCCL."""
    allowed = list(candidates(call, tuning)) or list(candidates(call, Tuning()))
    return min(allowed, key=lambda run: (run.seconds, run.latency))


def candidates(call: CollectiveCall, tuning: Tuning) -> Iterator[AlgorithmRun]:
    """All allowed pairs of algorithm and protocol. RCCL has no LL128 between nodes (ROCm 6.2, on MI300X)."""
    is_rccl = call.links.generation.startswith("cdna")
    protocols = (LL, SIMPLE) if is_rccl and call.layout.nodes > 1 and call.kind not in DIRECT else range(len(PROTOCOLS))
    for formula in FORMULAS.values():
        for protocol in protocols:
            run = formula(call, protocol)
            if run is not None and (call.kind in DIRECT or tuning.allows(call.kind, run.algorithm, protocol)):
                yield run


def _local(collective: Collective, links: Links, name: str) -> Price:
    """Price for a group of one rank: a copy of its data."""
    size = 0 if collective.kind == "barrier" else max(collective.bytes, 0)
    duration = _LOCAL_US * 1e-6 + 2 * size / (links.memory_Bps * _LOCAL_EFFICIENCY)
    return Price(round(duration * 1e9), Origin.ANALYTIC, 0.5, name, "latency" if size < 1 << 22 else "memory")
