"""The fallback chain: each signature is priced by the first estimator that covers it.

>>> from presim import hardware
>>> from presim.trace.builder import TraceBuilder
>>> from presim.trace.signatures import Gemm
>>> build = TraceBuilder()
>>> build.work(Gemm(m=4096, n=4096, k=4096, batch=1, dtype="bfloat16"))
>>> priced = price_trace(build.trace(), hardware.choose_cluster(gpu="h100-sxm"))
>>> priced.prices[0].origin.name, priced.uncovered
('LEARNED', ())
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from presim.cost.analytic.element_access import at_least_instructions
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.analytic.kernel import guess
from presim.cost.analytic.norm_rows import at_least_rows
from presim.cost.analytic.softmax_rows import at_least_passes
from presim.cost.bounds import datasheet_ns
from presim.cost.collective_logs.bandwidth_bounds import least_ns
from presim.cost.collectives.nccl_environment import ignored_variables
from presim.cost.collectives.nccl_variables import unknown_variables
from presim.cost.collectives.network_model import NetworkModel, Transfer, first_answers
from presim.cost.collectives.network_models import collective_models
from presim.cost.estimators import estimators, notes
from presim.cost.gpu_variability import on_slowest_gpu, slowdown
from presim.cost.overlap import Demand
from presim.cost.price import Estimator, Price, PricedTrace
from presim.cost.resource_demand import demand
from presim.errors import InputError
from presim.hardware import Cluster
from presim.trace.schema import Group, Manifest, Trace
from presim.trace.signatures import Collective, Elementwise, Normalization, Signature, Softmax

_LEAST_ACCESS = {Elementwise: at_least_instructions, Softmax: at_least_passes, Normalization: at_least_rows}
MOST_NS = 1 << 50  # 13 days of one kernel or collective; ten thousand of them fit 64 bits


@dataclasses.dataclass(frozen=True)
class Chain:
    """Estimators and collective models, in the order in which they are tried."""

    estimators: Sequence[Estimator]
    collective_models: Sequence[NetworkModel]
    device: Device  # for guesses, if no estimator covers a signature

    @classmethod
    def default(cls, cluster: Cluster, nccl: Mapping[str, str] | None = None, prices: Sequence[Path] = ()) -> Chain:
        """Return the default chain: measured, then learned, then analytic.

        ``nccl``: the script's NCCL variables. ``prices``: folders with the user's own tables and models.
        """
        return cls(estimators(cluster.gpu, prices), collective_models(cluster, nccl), device_of(cluster.gpu))

    def price(self, signatures: Sequence[Signature], groups: Sequence[Group], cluster: Cluster) -> list[Price | None]:
        """One price per signature; None if no estimator covers it."""
        prices: list[Price | None] = [None] * len(signatures)
        for index, signature in enumerate(signatures):
            if isinstance(signature, Collective):
                prices[index] = self._collective(signature, groups, cluster)
        for estimator in self.estimators:
            open_indices = [
                index
                for index, price in enumerate(prices)
                if price is None and not isinstance(signatures[index], Collective)
            ]
            if not open_indices:
                break
            for index, price in zip(open_indices, estimator.price([signatures[index] for index in open_indices])):
                prices[index] = price and self._at_least_access(signatures[index], price)
        return prices

    def price_all(
        self, signatures: Sequence[Signature], groups: Sequence[Group], cluster: Cluster
    ) -> tuple[list[Price], list[int]]:
        """One price per signature on the slowest GPU, and the indices of guessed ones.

        Whole traces and growing ones (`presim.evaluation.live.feed`) are both priced here, so their prices agree.
        """
        prices = self.price(signatures, groups, cluster)
        factor = slowdown(cluster.world_size)
        complete = [
            on_slowest_gpu(
                signature,
                _at_least_datasheet_minimum(signature, price or guess(signature, self.device), groups, cluster),
                factor,
            )
            for signature, price in zip(signatures, prices)
        ]
        _check_durations(signatures, complete, cluster)
        return complete, [index for index, price in enumerate(prices) if price is None]

    def _at_least_access(self, signature: Signature, price: Price) -> Price:
        """The price, but at least the time in which a kernel can access its operands."""
        at_least = _LEAST_ACCESS.get(type(signature))
        return at_least(signature, price, self.device) if at_least else price

    def _collective(self, signature: Collective, groups: Sequence[Group], cluster: Cluster) -> Price | None:
        if not 0 <= signature.group < len(groups):
            raise InputError(
                f"the trace has a {signature.kind} on process group {signature.group}, but its manifest lists "
                f"{len(groups)} groups; capture it again with this version of presim"
            )
        return first_answers(self.collective_models, [Transfer(signature, groups[signature.group])], cluster)[0]


def _at_least_datasheet_minimum(signature: Signature, price: Price, groups: Sequence[Group], cluster: Cluster) -> Price:
    """The price, but at least the minimum time by the datasheets of the GPU and its links."""
    if isinstance(signature, Collective):
        least = least_ns(signature, groups[signature.group].ranks, cluster)
    else:
        least = datasheet_ns(signature, cluster.gpu)
    return price if price.duration_ns >= least else msgspec.structs.replace(price, duration_ns=math.ceil(least))


def _check_durations(signatures: Sequence[Signature], prices: Sequence[Price], cluster: Cluster) -> None:
    """Keep sums of durations within 64 bits, whatever sizes a trace and figures a cluster file have."""
    longest = max(range(len(prices)), key=lambda index: prices[index].duration_ns, default=None)
    if longest is None or prices[longest].duration_ns <= MOST_NS:
        return
    price, tag = prices[longest], type(signatures[longest]).__struct_config__.tag
    raise InputError(
        f"{tag} (signature {longest}) takes {price.duration_ns / 86_400e9:,.0f} days by {price.estimator}, and at most "
        f"{MOST_NS / 86_400e9:,.0f} can be simulated; correct its sizes, or the figures of {cluster.gpu.id} and links"
    )


def price_trace(trace: Trace, cluster: Cluster, chain: Chain | None = None, prices: Sequence[Path] = ()) -> PricedTrace:
    """Price every signature of a trace for a cluster. Signatures without an estimator are guessed and listed.

    ``prices``: folders with the user's tables and models, tried first; ignored if a chain is given.
    """
    _check_size(trace.manifest, cluster)
    nccl = trace.manifest.nccl
    chain = chain or Chain.default(cluster, nccl, prices)
    of_tables = notes(cluster.gpu, prices)
    answers, uncovered = chain.price_all(trace.signatures, trace.manifest.groups, cluster)
    if trace.manifest.measured is not None:
        from presim.cost.profiled import as_measured

        return as_measured(trace, cluster, chain, answers, uncovered, lambda origin: Chain.default(origin, nccl))
    demands = demands_of(trace.signatures, answers, trace.manifest.groups, cluster, nccl)
    unread_notes = _notes({**cluster.nccl, **nccl})
    of_network = _network_note(trace.signatures, answers) if cluster.network else ()
    return PricedTrace(
        trace, tuple(answers), tuple(uncovered), demands, (*of_tables, *unread_notes), of_network, shared_ports(cluster)
    )


def _network_note(signatures: Sequence[Signature], answers: Sequence[Price]) -> tuple[str, ...]:
    from presim.cost.collectives.contended import contended_note

    return contended_note(
        [price.estimator for signature, price in zip(signatures, answers) if isinstance(signature, Collective)]
    )


def demands_of(
    signatures: Sequence[Signature],
    prices: Sequence[Price],
    groups: tuple[Group, ...],
    cluster: Cluster,
    nccl: Mapping[str, str],
) -> tuple[Demand, ...]:
    """Resource demand of each signature while it runs."""
    return tuple(demand(signature, price, groups, cluster, nccl) for signature, price in zip(signatures, prices))


def shared_ports(cluster: Cluster) -> tuple[int, ...]:
    """The shared port of each rank; empty if no GPUs share ports or nothing leaves the nodes.

    Ports of a described network are links like others (`presim.cost.collectives.fabric_traffic`).
    """
    if cluster.network or cluster.world_size <= cluster.domain_size or not cluster.ports_of((0,)):
        return ()
    ports = tuple(map(cluster.port, range(cluster.world_size)))
    return ports if len(set(ports)) < len(ports) else ()


def _notes(nccl: Mapping[str, str]) -> tuple[str, ...]:
    notes = []
    if names := ignored_variables(nccl):
        notes.append(f"The effects of {', '.join(names)} on NCCL are not modelled.")
    if names := unknown_variables(nccl):
        notes.append(f"NCCL documents no {', '.join(names)}: no effect is modelled.")
    return tuple(notes)


def _check_size(manifest: Manifest, cluster: Cluster) -> None:
    highest = max((max(group.ranks) for group in manifest.groups if group.ranks), default=0)
    if highest >= cluster.world_size:
        raise InputError(
            f"the trace's process groups reach rank {highest}, but the cluster has {cluster.world_size} GPUs "
            f"({cluster.nodes} nodes of {cluster.gpus_per_node}); name a cluster of at least {highest + 1} GPUs"
        )
