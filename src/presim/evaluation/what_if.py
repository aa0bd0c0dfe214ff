"""What-if changes of a prediction: other bandwidths, failed links, slow nodes or ranks, faster or slower operators.

Changes are applied to the cluster, to the choice of simulated ranks, and to prices. The traces do not change.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import get_args

import msgspec

from presim.cost.estimator_selection import Selection
from presim.cost.price import PricedTrace
from presim.errors import InputError
from presim.hardware import Cluster
from presim.hardware.cluster import NodeGroup
from presim.hardware.network.failures import failure_of
from presim.trace.collective import COLLECTIVE_KINDS, Collective
from presim.trace.schema import Trace
from presim.trace.signatures import Signature, family
from presim.trace.splitting import split

_WIRES = {"inter": "between nodes", "intra": "within a node"}
_SLOWEST, _FASTEST = 1e-3, 1e3
WORK_NAMES = frozenset(map(family, get_args(Signature))) | {*COLLECTIVE_KINDS, "dispatch", "combine"}


@dataclasses.dataclass(frozen=True)
class Changes:
    """Factors by name; see `changes_of`."""

    bandwidth: Mapping[str, float] = dataclasses.field(default_factory=dict)  # inter, intra
    stragglers: Mapping[str, float] = dataclasses.field(default_factory=dict)  # node3, rank17: speed of their GPUs
    operators: Mapping[str, float] = dataclasses.field(default_factory=dict)  # family or collective: factor of its time
    failed: tuple[str, ...] = ()  # links, NICs and switches, see `presim.hardware.network.failures.failure_of`
    isolated_groups: bool = False  # groups of ranks do not share the described network
    estimators: Selection | None = None  # None: presim's own chain
    is_for_many_jobs: bool = False  # of which some may lack the work that a factor names

    def __bool__(self) -> bool:
        return bool(
            self.bandwidth
            or self.stragglers
            or self.operators
            or self.failed
            or self.isolated_groups
            or self.estimators
        )

    def changed_cluster(self, cluster: Cluster) -> Cluster:
        """The cluster with changed bandwidths and failed links."""
        gpu, fabric, neighbours = cluster.gpu, cluster.fabric, cluster.neighbours
        if "intra" in self.bandwidth:
            if cluster.node.interconnect == "pcie" or not gpu.nvlink_bytes_per_s:
                raise InputError(
                    f"--bandwidth intra changes NVLink, and {cluster.node.id} with {gpu.id} has none; "
                    "describe the node you mean with --node"
                )
            gpu = msgspec.structs.replace(gpu, nvlink_bytes_per_s=gpu.nvlink_bytes_per_s * self.bandwidth["intra"])
        if "inter" in self.bandwidth:
            fabric = msgspec.structs.replace(fabric, port_bytes_per_s=fabric.port_bytes_per_s * self.bandwidth["inter"])
        if neighbours and self.bandwidth:
            neighbours = tuple(self._group(group) for group in neighbours)
        network = {} if self.isolated_groups and not self.failed else cluster.network
        if self.failed:
            network = {**network, "failed": (*network.get("failed", ()), *self.failed)}
        return msgspec.structs.replace(cluster, gpu=gpu, fabric=fabric, network=network, neighbours=neighbours)

    def _group(self, group: NodeGroup) -> NodeGroup:
        """A group of nodes with changed bandwidths."""
        inter, intra = (self.bandwidth.get(name, 1.0) for name in ("inter", "intra"))
        gpu = msgspec.structs.replace(group.gpu, nvlink_bytes_per_s=group.gpu.nvlink_bytes_per_s * intra)
        fabric = msgspec.structs.replace(group.fabric, port_bytes_per_s=group.fabric.port_bytes_per_s * inter)
        return msgspec.structs.replace(group, gpu=gpu, fabric=fabric)

    def split_ranks(
        self,
        traces: Sequence[Trace],
        stands_for: Mapping[int, Sequence[int]],
        cluster: Cluster,
        groups: Mapping[int, Hashable],
    ) -> tuple[list[Trace], dict[int, list[int]]]:
        """The traces to simulate, and the ranks that each represents: those of the same speed and group.

        ``groups``: by rank, another way in which it differs, e.g. its group of nodes.
        """
        speeds = self._speeds(cluster)
        if not speeds and not groups:
            return list(traces), {rank: list(represented_ranks) for rank, represented_ranks in stands_for.items()}
        kinds = {rank: (speeds.get(rank), groups.get(rank)) for rank in (*speeds, *groups)}
        return split(traces, stands_for, kinds)

    def reprice(self, priced: PricedTrace, cluster: Cluster) -> PricedTrace:
        """One rank's trace with the prices of the named estimators; ``cluster``: as this rank sees it."""
        return self.estimators.reprice(priced, cluster) if self.estimators else priced

    def prices(self, priced: PricedTrace, cluster: Cluster) -> PricedTrace:
        """One rank's prices, scaled by its speed and the factors of operators."""
        speed = self._speeds(cluster).get(priced.trace.manifest.rank, 1.0)
        if speed == 1.0 and not self.operators:
            return priced
        factors = [
            self._factor(signature) / (1.0 if isinstance(signature, Collective) else speed)
            for signature in priced.trace.signatures
        ]
        changed = [
            price if factor == 1 else msgspec.structs.replace(price, duration_ns=round(price.duration_ns * factor))
            for price, factor in zip(priced.prices, factors, strict=True)
        ]
        fabric = priced.fabric
        if fabric is not None:
            contended_ns = (round(ns * factor) for ns, factor in zip(fabric.together_ns, factors, strict=True))
            fabric = dataclasses.replace(fabric, together_ns=tuple(contended_ns))
        return dataclasses.replace(priced, prices=tuple(changed), fabric=fabric)

    def check_operators(self, traces: Sequence[Trace]) -> None:
        """Check that the job has the work that each factor names; for many jobs, that some job may have it.

        Raises:
            InputError: it has no such work.
        """
        if self.is_for_many_jobs:
            if unknown := [name for name in self.operators if name not in WORK_NAMES]:
                raise InputError(f"--scale-op {unknown[0]}: name one of {', '.join(sorted(WORK_NAMES))}")
            return
        work_names = {name for trace in traces for signature in trace.signatures for name in _names(signature)}
        for name in self.operators:
            if name not in work_names:
                raise InputError(
                    f"--scale-op {name}: the job has no such work; name one of {', '.join(sorted(work_names))}"
                )

    def sentences(self, cluster: Cluster, simulated: int, captured: int) -> list[str]:
        """The changes as sentences for the result; ``cluster``: before the changes."""
        changes = [f"bandwidth {_WIRES[name]} x {factor:g}" for name, factor in self.bandwidth.items()]
        changes += [f"{_described_target(name)} at {speed:g} of its speed" for name, speed in self.stragglers.items()]
        changes += [f"{name} takes {factor:g} times as long" for name, factor in self.operators.items()]
        changes += [failure_of(text).words for text in self.failed]
        changes += [self.estimators.words()] if self.estimators else []
        if self.isolated_groups and cluster.network and not self.failed:
            changes.append("groups of ranks do not share the network")
        sentences = [f"What if: {'; '.join(changes)}."] if changes else []
        if simulated > captured:
            sentences.append(
                f"{simulated} ranks were simulated, {simulated - captured} of them with the trace of another rank."
            )
        after = self.changed_cluster(cluster)
        requested_bytes_per_s = cluster.network_bytes_per_s * self.bandwidth.get("inter", 1.0)
        if after.network_bytes_per_s < 0.999 * requested_bytes_per_s:
            sentences.append(
                f"A GPU's link to its host carries {after.network_bytes_per_s / 1e9:.0f} GB/s, which limits what its "
                f"network of {requested_bytes_per_s / 1e9:.0f} GB/s can give."
            )
        return sentences

    def _factor(self, signature: Signature) -> float:
        factor = 1.0
        for name in _names(signature):
            factor *= self.operators.get(name, 1.0)
        return factor

    def _speeds(self, cluster: Cluster) -> dict[int, float]:
        """The speeds of slowed ranks, by rank; several factors of one rank are multiplied."""
        speeds: dict[int, float] = {}
        for name, speed in self.stragglers.items():
            kind, number = _parsed_target(name)
            limit = cluster.nodes if kind == "node" else cluster.world_size
            if number >= limit:
                raise InputError(
                    f"--straggler {name}: the cluster has {limit} {kind}s, numbered from 0; name one below {limit}"
                )
            first = number * cluster.gpus_per_node
            ranks = range(first, first + cluster.gpus_per_node) if kind == "node" else (number,)
            for rank in ranks:
                speeds[rank] = speeds.get(rank, 1.0) * speed
        return speeds


def changes_of(
    bandwidth: Sequence[str],
    stragglers: Sequence[str],
    operators: Sequence[str],
    failed: Sequence[str] = (),
    *,
    isolated_groups: bool = False,
    estimators: Selection | None = None,
) -> Changes:
    """The changes from ``NAME=FACTOR`` texts, as given on the command line.

    Raises:
        InputError: a name is unknown, or a factor is not a number in range.
    """
    wires = _factors("--bandwidth", bandwidth)
    if unknown := [name for name in wires if name not in _WIRES]:
        raise InputError(f"--bandwidth {unknown[0]}: there are inter ({_WIRES['inter']}) and intra ({_WIRES['intra']})")
    slow = _factors("--straggler", stragglers)
    for name in slow:
        _parsed_target(name)
    for text in failed:
        failure_of(text)
    return Changes(wires, slow, _factors("--scale-op", operators), tuple(failed), isolated_groups, estimators)


def _factors(option: str, texts: Sequence[str]) -> dict[str, float]:
    factors: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            factor = float(number.removesuffix("x"))
        except ValueError:
            factor = 0.0
        if not (name and equals and _SLOWEST <= factor <= _FASTEST):
            raise InputError(
                f"{option} takes NAME=FACTOR with a factor from {_SLOWEST:g} to {_FASTEST:g}; got {text!r}"
            )
        if name in factors:
            raise InputError(f"{option} {name} is given twice; leave one of them")
        factors[name] = factor
    return factors


def _parsed_target(name: str) -> tuple[str, int]:
    match = re.fullmatch(r"(node|rank)(\d+)", name)
    if match is None:
        raise InputError(f"--straggler takes node3=0.8 or rank17=0.8; got the name {name!r}")
    return match[1], int(match[2])


def _described_target(name: str) -> str:
    kind, number = _parsed_target(name)
    return f"{kind} {number}"


def _names(signature: Signature) -> tuple[str, ...]:
    """The names of this work for a factor: its family, and the kind of a collective."""
    kind = (signature.kind,) if isinstance(signature, Collective) else ()
    return (family(signature), *kind)
