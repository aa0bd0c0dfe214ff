"""Bandwidth of keys and values between engines: from prefill to decode, and to and from a pool that all share."""

from __future__ import annotations

import statistics

import msgspec

from presim.hardware import Cluster
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.exchange import Exchange, run
from presim.serving.steps.times import PricedEngine

_BYTES = 1 << 30  # of each GPU in the simulated transfers: latency does not count


def kv_bytes_per_s(
    decode: PricedEngine, decode_engines: int, prefill: PricedEngine | None, prefill_engines: int
) -> float:
    """Bytes/s of one transfer while as many go on as there are pairs of engines.

    On a described network, engines follow one another on its nodes, prefill first, and every GPU sends to the GPU of
    the same number. Without one, each GPU has its ports, and its part of the links above them where the fabric is
    oversubscribed, as in collectives.
    """
    cluster = decode.cluster
    if prefill is None or not cluster.network:
        senders_elsewhere = [prefill] if prefill is not None and prefill.cluster.gpu.id != cluster.gpu.id else []
        return min(map(_ports_bytes_per_s, (decode, *senders_elsewhere)))
    first_gpus = prefill_engines * prefill.plan.gpus
    topology = topology_of(_of_size(cluster, first_gpus + decode_engines * decode.plan.gpus), cluster.network)
    pairs, senders = min(prefill_engines, decode_engines), min(prefill.plan.tp, decode.plan.tp)
    exchanges = [
        Exchange("send", _BYTES, (pair * prefill.plan.gpus + gpu, first_gpus + pair * decode.plan.gpus + gpu))
        for pair in range(pairs)
        for gpu in range(senders)
    ]
    seconds = run(topology, exchanges).seconds
    slowest_s = [max(seconds[pair * senders : (pair + 1) * senders]) for pair in range(pairs)]
    return senders * _BYTES / statistics.fmean(slowest_s)


def shared_bytes_per_s(engine: PricedEngine, engines: int) -> float:
    """Bytes/s of a GPU's part of a block to or from a pool spread over all engines' nodes, while all engines do so.

    On a described network, every engine reads from the one half of all engines further on. Without one, each GPU has
    its port, and its part of the links above it where the fabric is oversubscribed.
    """
    cluster, gpus = engine.cluster, engine.plan.gpus
    if not cluster.network or engines == 1:
        return cluster.network_bytes_per_s / cluster.fabric.oversubscription
    topology = topology_of(_of_size(cluster, engines * gpus), cluster.network)
    exchanges = [
        Exchange("send", _BYTES, ((reader + engines // 2) % engines * gpus + gpu, reader * gpus + gpu))
        for reader in range(engines)
        for gpu in range(gpus)
    ]
    return _BYTES / statistics.fmean(run(topology, exchanges).seconds)


def _ports_bytes_per_s(engine: PricedEngine) -> float:
    """Bytes/s of an engine's ports, and of its part of the links above them."""
    return engine.cluster.network_bytes_per_s * engine.plan.tp / engine.cluster.fabric.oversubscription


def _of_size(cluster: Cluster, gpus: int) -> Cluster:
    """The cluster with nodes for so many GPUs."""
    per_node = min(cluster.node.gpus, gpus)
    return msgspec.structs.replace(cluster, nodes=-(-gpus // per_node), gpus_per_node=per_node)
