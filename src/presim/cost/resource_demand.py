"""The shares of a GPU's resources that priced work uses; `presim.cost.overlap` derives the slowdown from them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from presim.cost.collectives.algorithms import DIRECT, SIMPLE
from presim.cost.collectives.channels import channels
from presim.cost.collectives.collective_constants import exchange_constants, fabric_constants
from presim.cost.collectives.expert_exchange import exchanged_bytes
from presim.cost.collectives.group_placement import GroupPlacement, Links, layout_of, links_of
from presim.cost.collectives.nccl_environment import Tuning, tuning_of
from presim.cost.overlap import NOTHING, Demand
from presim.cost.price import Price
from presim.hardware import Cluster
from presim.trace.collective import Collective, Routed
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Group
from presim.trace.signatures import (
    Attention,
    Convolution,
    Copy,
    Fused,
    Gemm,
    GroupedGemm,
    Kernel,
    MemoryBound,
    Signature,
    SparseProduct,
)

_STEPS = 64  # demands are rounded to this fraction, so that many signatures share a class
MEMORY_REACHED = 0.9  # share of the datasheet's bandwidth that copies reach on all GPU generations
_WIRES_REACHED = 0.8  # the same for links and ports, with large messages
_ARITHMETIC = {"compute": 1.0, "": 0.5}  # compute-bound share by bottleneck; other kernels do not depend on their SMs

# Memory accesses per byte that a rank sends. Received data is written and then read again for sending; a reduction also
# reads an operand. "At least 2x, with user data 3x": NCCL's maintainer, NVIDIA/nccl issue 1428.
_ACCESSES = {"all_gather": 2.0, "reduce_scatter": 3.0, "all_reduce": 2.5, "reduce": 3.0, "send": 1.0, "recv": 1.0}
_PASSES = {"all_reduce": 2.0, "barrier": 0.0}
_ROUNDED_BEFORE = ("shared_out", "shared_in")  # a part of 1/64 of a port
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


def demand(
    signature: Signature,
    price: Price,
    groups: tuple[Group, ...],
    cluster: Cluster,
    environment: Mapping[str, str] | None = None,
) -> Demand:
    """Resource demand of work that runs alone, rounded to 1/64.

    ``environment``: the script's NCCL variables.
    """
    seconds = max(price.duration_ns, 1) * 1e-9
    if isinstance(signature, Collective):
        tuning = tuning_of(cluster.nccl, environment or {})
        unrounded = _of_collective(signature, groups[signature.group], cluster, tuning, seconds)
    else:
        memory = moved_bytes(signature) / seconds / (cluster.gpu.memory_bytes_per_s * MEMORY_REACHED)
        unrounded = Demand(arithmetic=0.0 if isinstance(signature, Copy) else _arithmetic_demand(price), memory=memory)
        if isinstance(signature, Copy) and signature.direction == "peer":
            unrounded = dataclasses.replace(unrounded, link_out=1.0)
    return _rounded(unrounded)


def _arithmetic_demand(price: Price) -> float:
    return _ARITHMETIC.get(price.bound, 0.0)


def _share_of_cores(blocks: float, cluster: Cluster) -> float:
    """Share of a GPU's SMs that thread blocks occupy; none of accelerators, which move data by engines of their own."""
    return blocks / cluster.gpu.sm_count if cluster.gpu.sm_count else 0.0


def _of_collective(collective: Collective, group: Group, cluster: Cluster, tuning: Tuning, seconds: float) -> Demand:
    layout = layout_of(collective, group, cluster)
    if layout.ranks <= 1:
        memory = 2 * collective.bytes / seconds / (cluster.gpu.memory_bytes_per_s * MEMORY_REACHED)
        return Demand(memory=memory)
    links = links_of(cluster, layout, tuning)
    if collective.routed is not None:
        return _of_exchange(collective.routed, layout, links, cluster, seconds)
    sent = _sent_bytes(collective.even, layout)
    out, into = (0.0 if collective.kind == "recv" else sent), (0.0 if collective.kind == "send" else sent)
    accesses = _ACCESSES.get(collective.kind, 2.0) * sent
    leaving = sent
    if (
        collective.kind == "all_to_all"
    ):  # other algorithms cross each node once; this one sends each rank's data separately
        leaving *= layout.per_node * (layout.ranks - layout.per_node) / (layout.ranks - 1)
    constants = fabric_constants(links.fabric, cluster.collectives)
    reached = constants.direct_efficiency if collective.kind in DIRECT else constants.efficiency[SIMPLE]
    part = _part_of_port(leaving / seconds, reached, layout, links)
    link = links.link_Bps * _WIRES_REACHED * seconds if layout.per_node > 1 else float("inf")
    port = _port_Bps(links, layout) * _WIRES_REACHED * seconds if layout.nodes > 1 else float("inf")
    return Demand(
        channels=_share_of_cores(channels(collective, layout, links, tuning), cluster),
        memory=accesses / seconds / (links.memory_Bps * MEMORY_REACHED),
        link_out=out / link,
        link_in=into / link,
        port_out=out / port,
        port_in=into / port,
        shared_out=part if out else 0.0,
        shared_in=part if into else 0.0,
    )


def _part_of_port(node_Bps: float, reached: float, layout: GroupPlacement, links: Links) -> float:
    """The share of a port that one rank uses.

    ``reached``: bandwidth share that large messages reach, as in the prices, so k equal groups take k times as long as
    one. The group's ranks share its ports equally.
    """
    if layout.nodes == 1 or not links.shared_ports:
        return 0.0
    of_ports = node_Bps / (links.shared_ports * links.port_Bps * reached)
    return min(round(of_ports * _STEPS), _STEPS) / _STEPS * links.shared_ports / layout.per_node


def _of_exchange(routed: Routed, layout: GroupPlacement, links: Links, cluster: Cluster, seconds: float) -> Demand:
    """Demand of an expert exchange: sent data is read once and written at the receiver."""
    bytes_ = exchanged_bytes(routed, layout)
    link = bytes_.link_bytes / (links.link_Bps * _WIRES_REACHED * seconds)
    port = bytes_.port_bytes / (links.network_Bps * _WIRES_REACHED * seconds)
    reached = exchange_constants(routed.library).port_efficiency
    part = _part_of_port(bytes_.port_bytes * layout.per_node / seconds, reached, layout, links)
    return Demand(
        channels=_share_of_cores(routed.sms, cluster),
        memory=2 * max(bytes_.link_bytes, bytes_.port_bytes) / seconds / (links.memory_Bps * MEMORY_REACHED),
        link_out=link,
        link_in=link,
        port_out=port,
        port_in=port,
        shared_out=part,
        shared_in=part,
    )


def _sent_bytes(collective: Collective, layout: GroupPlacement) -> float:
    """Bytes that one rank sends."""
    total_bytes = float(max(collective.bytes, 0)) * _PASSES.get(collective.kind, 1.0)
    if collective.kind in ("send", "recv", "send_recv", *_ROOTED):
        return total_bytes
    return total_bytes * (layout.ranks - 1) / layout.ranks


def _port_Bps(links: Links, layout: GroupPlacement) -> float:
    """Bandwidth of the ports of all members on a node; a ring sends each rank's data over all of them."""
    return links.network_Bps * layout.per_node


def moved_bytes(signature: Signature) -> float:
    """Bytes read and written, each operand once."""
    match signature:
        case MemoryBound() | Fused() | Kernel() | SparseProduct():
            return float(signature.bytes)
        case Copy():
            return signature.bytes * (2.0 if signature.direction == "d2d" else 1.0)
        case Gemm():
            elements = signature.m * signature.k + signature.k * signature.n + signature.m * signature.n
            return float(elements * signature.batch * dtype_bytes(signature.dtype))
        case GroupedGemm():
            groups = len(signature.sizes) or signature.groups
            elements = signature.m * (signature.k + signature.n) + groups * signature.k * signature.n
            return float(elements * dtype_bytes(signature.dtype))
        case Attention():
            queries = signature.heads * signature.q_len * (signature.head_dim + signature.v_head_dim)
            keys = signature.kv_heads * signature.kv_len * (signature.head_dim + signature.v_head_dim)
            passes = 1 if signature.direction == "forward" else 3
            return float(passes * signature.batch * (queries + keys) * dtype_bytes(signature.dtype))
        case Convolution():
            points = functools.partial(functools.reduce, lambda product, size: product * size)
            images = signature.in_channels * points(signature.input_size)
            images += signature.out_channels * points(signature.output_size)
            return float(signature.batch * images * dtype_bytes(signature.dtype))
    return 0.0


def _rounded(unrounded: Demand) -> Demand:
    values = {
        field.name: min(round(getattr(unrounded, field.name) * _STEPS), _STEPS) / _STEPS
        for field in dataclasses.fields(Demand)
        if field.name not in _ROUNDED_BEFORE
    }
    rounded = Demand(**values, shared_out=unrounded.shared_out, shared_in=unrounded.shared_in)
    return NOTHING if rounded == NOTHING else rounded
