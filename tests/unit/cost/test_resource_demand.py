"""What priced work asks of its GPU."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from presim import hardware
from presim.cost.chain import price_trace
from presim.cost.overlap import NOTHING, Demand
from presim.cost.price import Origin, Price
from presim.cost.resource_demand import demand
from presim.hardware import Cluster
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import Collective, Copy, Elementwise, Gemm, Signature

GROUPS = (
    Group("world", tuple(range(16)), 16),
    Group("node", tuple(range(8)), 8),
    Group("across", (0, 8), 2),
)


def cluster() -> Cluster:
    return hardware.choose_cluster(gpu="h100-sxm", nodes=2)


def of(signature: Signature, nanoseconds: int = 1_000_000, bound: str = "") -> Demand:
    return demand(signature, Price(nanoseconds, Origin.ANALYTIC, 0.1, "test", bound), GROUPS, cluster())


def priced(signature: Signature) -> Demand:
    """With the price that the chain gives it."""
    return chain_price(signature, cluster())[1]


def chain_price(signature: Signature, cluster: Cluster) -> tuple[Price, Demand]:
    build = TraceBuilder(Manifest(16, 0, "h100-sxm", 8, "", groups=GROUPS))
    build.work(signature)
    priced = price_trace(build.trace(), cluster)
    return priced.prices[0], priced.demands[0]


def reduce(group: int, size: int = 1 << 30) -> Collective:
    return Collective(kind="all_reduce", bytes=size, dtype="bfloat16", group=group)


def test_a_kernel_asks_by_what_bounds_it() -> None:
    product = Gemm(m=64, n=64, k=64, batch=1, dtype="bfloat16")
    assert of(product, bound="compute").arithmetic == 1.0
    assert of(product, bound="memory").arithmetic == 0.0
    assert of(product, bound="").arithmetic == 0.5
    assert of(product, bound="latency") == NOTHING


def test_memory_is_what_its_bytes_take_of_what_can_be_reached() -> None:
    """Half of 90 % of 3.35 TB/s for a millisecond."""
    half = Elementwise(bytes_read=1_000_000_000, bytes_written=507_500_000, elements=1, dtype="float32")
    assert of(half).memory == 0.5
    assert of(half, nanoseconds=100_000).memory == 1.0


def test_a_large_collective_of_a_node_fills_its_links_and_holds_24_sms() -> None:
    node = priced(Collective(kind="all_gather", bytes=1 << 30, dtype="bfloat16", group=1))
    assert node.channels == pytest.approx(24 / 132, abs=1 / 64)
    assert node.link_out == node.link_in > 0.9
    assert node.port_out == node.port_in == 0.0
    assert 0.1 < node.memory < 0.4


def test_between_nodes_it_fills_the_ports_and_holds_16() -> None:
    across = priced(reduce(0))
    assert across.channels == pytest.approx(16 / 132, abs=1 / 64)
    assert across.port_out > 0.9


def test_a_group_of_one_rank_a_node_uses_one_port() -> None:
    """And so a fraction of the memory bandwidth that eight ports feed."""
    across = priced(reduce(2))
    assert across.port_out > 0.9
    assert across.link_out == 0.0
    assert across.memory < 0.1
    assert across.channels < priced(reduce(0)).channels


def test_a_small_collective_holds_one_sm_and_little_else() -> None:
    small = priced(reduce(1, size=4096))
    assert small.channels == pytest.approx(1 / 132, abs=1 / 64)
    assert small.link_out < 0.1


def test_messages_fill_one_direction() -> None:
    sent = of(Collective(kind="send", bytes=1 << 30, dtype="bfloat16", group=1, peer=1))
    received = of(Collective(kind="recv", bytes=1 << 30, dtype="bfloat16", group=1, peer=1))
    assert (sent.link_out, sent.link_in) == (received.link_in, received.link_out) == (1.0, 0.0)


def test_a_copy_to_a_peer_uses_its_links_and_a_group_of_one_its_memory_alone() -> None:
    assert of(Copy(direction="peer", bytes=1 << 20)).link_out == 1.0
    alone = demand(reduce(0), Price(500_000, Origin.ANALYTIC, 0.1, "test"), (Group("self", (0,), 1),), cluster())
    assert alone == Demand(memory=1.0)


def one_port() -> Cluster:
    """Two nodes of eight GPUs behind one port of 50 GB/s."""
    found = cluster()
    return msgspec.structs.replace(found, node=msgspec.structs.replace(found.node, nics=1))


def at_one_port(signature: Signature) -> tuple[Price, Demand]:
    return chain_price(signature, one_port())


def test_a_group_has_the_ports_that_it_reaches_to_itself() -> None:
    """One rank a node uses the one port alone, as eight do together, and as it would a port of its own."""
    gather = Collective(kind="all_gather", bytes=1 << 30, dtype="bfloat16", group=2)
    (own, alone), (shared, beside) = (chain_price(gather, cluster()), at_one_port(gather))
    assert own.duration_ns == shared.duration_ns
    assert (alone.shared_out, alone.shared_in) == (0.0, 0.0)
    assert beside.shared_out == beside.shared_in > 0.97  # the rest is latency
    assert dataclasses.replace(beside, shared_out=0.0, shared_in=0.0) == alone


def test_ranks_of_a_group_share_its_part_of_a_port() -> None:
    for kind in ("all_reduce", "all_gather", "all_to_all"):
        everyone = at_one_port(Collective(kind=kind, bytes=1 << 30, dtype="bfloat16", group=0))[1]
        assert 0.95 / 8 <= everyone.shared_out <= 1 / 8, kind


def test_a_message_takes_one_direction_of_a_port_and_a_group_of_one_node_none() -> None:
    sent = at_one_port(Collective(kind="send", bytes=1 << 30, dtype="bfloat16", group=2, peer=1))[1]
    assert sent.shared_out > 0.95
    assert sent.shared_in == 0.0
    node = at_one_port(Collective(kind="all_gather", bytes=1 << 30, dtype="bfloat16", group=1))[1]
    assert (node.shared_out, node.shared_in) == (0.0, 0.0)


def test_what_waits_for_latency_leaves_a_port_to_others() -> None:
    assert at_one_port(reduce(2, size=4096))[1].shared_out < 0.1
