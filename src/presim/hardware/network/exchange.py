"""Collectives as flows: the traffic of NCCL's rings and direct exchanges on the links."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from presim.errors import InputError
from presim.hardware.network.flows import Flows, Shared, busiest_seconds, simulate
from presim.hardware.network.mesh_rings import node_links, ring_orders
from presim.hardware.network.routing import routes
from presim.hardware.network.topology import Floats, Ints, Topology

Resolution = Literal["link", "flow"]
_ROUNDS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}
ROUTED = ("dispatch", "combine")  # of a library's tokens to experts: between GPUs at the same place of their nodes
KINDS = (*_ROUNDS, "broadcast", "reduce", "all_to_all", *ROUTED, "send", "recv", "send_recv")


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One collective of one group."""

    kind: str  # one of KINDS
    bytes: int  # as counted by nccl-tests; of a dispatch or combine, what a rank sends to other nodes
    ranks: tuple[int, ...]
    start_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class ExchangeOutcome:
    """Result of concurrent exchanges."""

    seconds: tuple[float, ...]  # by exchange, from its start, including latency
    flows: Flows
    shared: Shared | None  # None at link level


def run(topology: Topology, exchanges: Sequence[Exchange], resolution: Resolution = "flow") -> ExchangeOutcome:
    """Simulate concurrent exchanges."""
    pairs = [_endpoints_and_bytes(exchange, topology) for exchange in exchanges]
    senders, receivers, sizes = (np.concatenate([columns[column] for columns in pairs]) for column in range(3))
    exchange_of_flow = np.repeat(np.arange(len(pairs)), [len(columns[0]) for columns in pairs])
    start = np.repeat([exchange.start_s for exchange in exchanges], [len(columns[0]) for columns in pairs]).astype(
        np.float64
    )
    paths = routes(topology, senders, receivers)
    flows = Flows(paths, sizes.astype(np.float64), start, exchange_of_flow.astype(np.int64))
    latency = _latency_s(topology, paths)
    if resolution == "link":
        wire = busiest_seconds(topology, flows)
        return ExchangeOutcome(
            tuple(wire + float(latency[exchange_of_flow == index].max(initial=0.0)) for index in range(len(pairs))),
            flows,
            None,
        )
    shared = simulate(topology, flows)
    longest = np.zeros(len(pairs))
    np.maximum.at(longest, exchange_of_flow, shared.end_s - start + latency)
    return ExchangeOutcome(tuple(longest.tolist()), flows, shared)


def seconds_of_flows(topology: Topology, flows: Flows) -> float:
    """Seconds of the longest of these flows, on the paths that they have: for other bandwidths of the same links."""
    took_s = simulate(topology, flows).end_s - flows.start_s + _latency_s(topology, flows.paths)
    return float(took_s.max(initial=0.0))


def link_loads(topology: Topology, exchanges: Sequence[Exchange]) -> tuple[Floats, float]:
    """Bytes that all exchanges put on each link, and the bytes of the largest flow."""
    pairs = [_endpoints_and_bytes(exchange, topology) for exchange in exchanges]
    senders, receivers, sizes = (np.concatenate([columns[column] for columns in pairs]) for column in range(3))
    paths = routes(topology, senders, receivers)
    used = paths >= 0
    carried = np.bincount(
        paths[used], np.broadcast_to(sizes[:, None], paths.shape)[used], minlength=topology.links
    ).astype(np.float64)
    return carried, float(sizes.max(initial=0.0))


def flows_of(kind: str, ranks: int) -> int:
    """Upper bound on the flows of a collective."""
    return ranks * (ranks - 1) if kind in ("all_to_all", *ROUTED) else ranks * 8


def _latency_s(topology: Topology, paths: Ints) -> Floats:
    """Latency of each flow's path, counted once, because the steps of a ring are pipelined."""
    result: Floats = np.where(paths >= 0, topology.latency_ns[np.maximum(paths, 0)], 0.0).sum(axis=1) * 1e-9
    return result


def _endpoints_and_bytes(exchange: Exchange, topology: Topology) -> tuple[Ints, Ints, Ints]:
    """Sender, receiver and bytes of each flow."""
    ranks = np.array(exchange.ranks, np.int64)
    count = len(ranks)
    if exchange.kind not in KINDS:
        raise InputError(f"{exchange.kind!r} is not a known collective; use one of {', '.join(KINDS)}")
    if count < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    if exchange.kind == "all_to_all":
        senders, receivers = np.repeat(ranks, count), np.tile(ranks, count)
        is_between_ranks = senders != receivers
        size = exchange.bytes / count
        return senders[is_between_ranks], receivers[is_between_ranks], np.full(int(is_between_ranks.sum()), size)
    if exchange.kind in ROUTED:
        return _to_other_nodes(exchange.bytes, ranks, max(topology.gpus_per_node, 1))
    if exchange.kind in ("send", "recv", "send_recv"):
        directions = [(ranks[0], ranks[-1]), (ranks[-1], ranks[0])][: 2 if exchange.kind == "send_recv" else 1]
        pair = np.array(directions, np.int64)
        return pair[:, 0], pair[:, 1], np.full(len(pair), float(exchange.bytes))
    share = _ROUNDS.get(exchange.kind, 0.0) * (count - 1) / count or 1.0
    rings = _rings(ranks, topology)
    senders = rings.reshape(-1)
    receivers = np.roll(rings, -1, axis=1).reshape(-1)
    if exchange.kind in ("broadcast", "reduce"):  # a chain: no flow back to its head
        is_in_chain = np.tile(np.arange(count) < count - 1, len(rings))
        senders, receivers = senders[is_in_chain], receivers[is_in_chain]
    return senders, receivers, np.full(len(senders), share * exchange.bytes / len(rings))


def _to_other_nodes(size: int, ranks: Ints, per_node: int) -> tuple[Ints, Ints, Ints]:
    """Flows from each rank to the rank of its index on every other node; to all ranks there if node sizes differ."""
    ordered = np.sort(ranks)
    nodes, first, counts = np.unique(ordered // per_node, return_index=True, return_counts=True)
    if len(nodes) < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    rank_in_node = np.arange(len(ordered)) - np.repeat(first, counts)
    node = ordered // per_node
    has_flow = node[:, None] != node[None, :]
    if len(set(counts.tolist())) == 1:
        has_flow &= rank_in_node[:, None] == rank_in_node[None, :]
    senders, receivers = np.nonzero(has_flow)
    return ordered[senders], ordered[receivers], size / has_flow.sum(axis=1)[senders]


def _rings(ranks: Ints, topology: Topology) -> Ints:
    """Rings [ring, position] through all ranks, node by node.

    Each ring enters and leaves nodes through a different GPU.

    There are as many rings as ranks per node, as in NCCL, so that every GPU's port carries a part. Where links join the
    GPUs of a node directly, these follow several orders that share no link.
    """
    ordered, per_node = np.sort(ranks), topology.gpus_per_node
    if per_node <= 1:
        return ordered[None]
    nodes, counts = np.unique(ordered // per_node, return_counts=True)
    if len(set(counts.tolist())) > 1 or counts[0] == 1:
        return ordered[None]
    table = ordered.reshape(len(nodes), counts[0])
    orders = ring_orders(node_links(topology, table), tuple(range(int(counts[0])))) or (tuple(range(int(counts[0]))),)
    entries = range(int(counts[0]) if len(nodes) > 1 else 1)
    return np.stack([np.roll(table[:, order], -entry, axis=1).reshape(-1) for order in orders for entry in entries])
