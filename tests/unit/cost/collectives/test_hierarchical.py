"""The hierarchical model: which wires limit, what latency grows with, and what public logs show."""

from __future__ import annotations

import msgspec
import pytest

from presim import hardware
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.measured import CollectiveRow, Measured
from presim.cost.price import Price
from presim.errors import InputError
from presim.hardware import Cluster
from presim.trace.collective import Collective, Splits
from presim.trace.schema import Group

MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture
def cluster() -> Cluster:
    return hardware.choose_cluster(gpu="h100-sxm", nodes=64)


def priced(cluster: Cluster, kind: str, size: int, ranks: range, **more: int) -> Price:
    collective = Collective(kind=kind, bytes=size, dtype="bfloat16", group=0, **more)
    return Hierarchical().alone(collective, Group("g", tuple(ranks), len(ranks)), cluster)


def bus_GBps(price: Price, size: int, ranks: int, rounds: int) -> float:
    """Bus bandwidth as nccl-tests defines it."""
    return rounds * (ranks - 1) / ranks * size / price.duration_ns


def test_eight_h100_reach_the_bus_bandwidth_of_public_logs(cluster: Cluster) -> None:
    """471 GB/s for an all-reduce of 2 GiB, NVLS; rings get less (nccl-tests logs of single HGX H100 nodes)."""
    reduce = priced(cluster, "all_reduce", 2 * GIB, range(8))
    gather = priced(cluster, "all_gather", 2 * GIB, range(8))
    assert bus_GBps(reduce, 2 * GIB, 8, 2) == pytest.approx(471, rel=0.05)
    assert 300 < bus_GBps(gather, 2 * GIB, 8, 1) < 360


def test_four_nodes_are_limited_by_their_ports(cluster: Cluster) -> None:
    """325 GB/s of 400 (github.com/NVIDIA/nccl-tests/issues/309)."""
    assert bus_GBps(priced(cluster, "all_reduce", 8 * GIB, range(32)), 8 * GIB, 32, 2) == pytest.approx(325, rel=0.1)


def test_switches_between_nodes_that_reduce_take_the_data_once(cluster: Cluster) -> None:
    """If the fabric can and NCCL may: then the node's own switch limits. A gather gains nothing."""
    sharp = msgspec.structs.replace(
        cluster,
        fabric=msgspec.structs.replace(cluster.fabric, reduces_in_network=True),
        nccl={"NCCL_COLLNET_ENABLE": "1"},
    )
    forbidden = msgspec.structs.replace(sharp, nccl={})
    size, ranks = 8 * GIB, range(512)
    usual, faster = priced(cluster, "all_reduce", size, ranks), priced(sharp, "all_reduce", size, ranks)
    assert 1.3 < usual.duration_ns / faster.duration_ns < 2.05
    assert faster.duration_ns == pytest.approx(priced(cluster, "all_reduce", size, range(8)).duration_ns, rel=0.02)
    assert faster.uncertainty > usual.uncertainty
    assert faster.duration_ns >= size / 400  # 8 ports of 50 GB/s
    assert priced(forbidden, "all_reduce", size, ranks) == usual
    assert priced(sharp, "all_gather", size, ranks) == priced(cluster, "all_gather", size, ranks)
    assert priced(sharp, "all_reduce", size, range(8)) == priced(cluster, "all_reduce", size, range(8))


def test_one_rank_a_node_has_one_port(cluster: Cluster) -> None:
    """Sixteen ranks on sixteen nodes share nothing and have 50 GB/s each; eight a node have 400 together."""
    sparse = priced(cluster, "all_gather", GIB, range(0, 128, 8))
    dense = priced(cluster, "all_gather", GIB, range(128))
    assert 6 < sparse.duration_ns / dense.duration_ns < 9


def test_small_messages_are_latency_bound(cluster: Cluster) -> None:
    price = priced(cluster, "all_reduce", 8, range(8))
    assert price.bound == "latency"
    assert 10_000 < price.duration_ns < 25_000


def test_messages_of_a_few_words_have_less_latency_than_8_kib(cluster: Cluster) -> None:
    """nccl-tests issue 309: on 32 H100 an all-reduce of 128 bytes takes 36 us, of 8 KiB 47 us, of 64 KiB 51 us."""
    sizes = (128, 8192, 65536)
    words, page, more = (priced(cluster, "all_reduce", size, range(32)).duration_ns for size in sizes)
    assert 0.7 < words / page < 0.85
    assert page < more < 1.2 * page


def test_trees_keep_the_latency_of_large_jobs_low(cluster: Cluster) -> None:
    """A ring through 64 nodes would take 126 hops; a tree takes 12."""
    reduce = priced(cluster, "all_reduce", 8, range(512))
    gather = priced(cluster, "all_gather", 8, range(512))
    assert reduce.duration_ns < gather.duration_ns


def test_a_group_of_one_copies(cluster: Cluster) -> None:
    assert priced(cluster, "all_reduce", 8, range(1)).duration_ns < 6_000
    copied = priced(cluster, "all_gather", GIB, range(1)).duration_ns
    assert 2 * GIB / 3350 < copied < 1.5 * 2 * GIB / 3350


def test_a_barrier_takes_as_long_as_the_smallest_all_reduce(cluster: Cluster) -> None:
    barrier = priced(cluster, "barrier", 0, range(16))
    assert barrier.duration_ns == priced(cluster, "all_reduce", 4, range(16)).duration_ns


def test_coalesced_calls_pay_the_latency_once(cluster: Cluster) -> None:
    ten = priced(cluster, "all_gather", MIB, range(16), fused=10).duration_ns
    one = priced(cluster, "all_gather", MIB, range(16)).duration_ns
    assert one < ten < 1.2 * one


def test_all_to_all_between_nodes_is_limited_by_each_rank_s_own_port(cluster: Cluster) -> None:
    price = priced(cluster, "all_to_all", GIB, range(16))
    across_ns = GIB / 2 / 50
    assert across_ns < price.duration_ns < 1.6 * across_ns


def test_a_message_within_a_node_is_much_faster_than_between(cluster: Cluster) -> None:
    near = priced(cluster, "send", 64 * MIB, range(16), peer=1).duration_ns
    far = priced(cluster, "send", 64 * MIB, range(16), peer=8).duration_ns
    assert far > 5 * near


def test_two_gpus_of_a_mesh_share_one_link_of_many() -> None:
    """NVLink of V100 nodes joins GPUs directly: a pair has 23 GB/s, all eight 136 (vTrain's tables)."""
    mesh = hardware.choose_cluster(gpu="v100-32gb-sxm", nodes=1, gpus_per_node=8)
    pair, all_ = (priced(mesh, "all_reduce", GIB, range(count)) for count in (2, 8))
    assert bus_GBps(pair, GIB, 2, 2) == pytest.approx(23, rel=0.05)
    assert bus_GBps(all_, GIB, 8, 2) == pytest.approx(136, rel=0.05)


def exchange(cluster: Cluster, sent: list[int], received: list[int], own: int = 0) -> int:
    """Time of an all-to-all with these parts, ns."""
    ranks = tuple(range(len(sent)))
    splits = Splits(own, tuple(sent), tuple(received))
    collective = Collective("all_to_all", sum(sent), "bfloat16", 0, splits=splits)
    return Hierarchical().alone(collective, Group("g", ranks, len(ranks)), cluster).duration_ns


def test_an_all_to_all_takes_as_long_as_the_busier_direction_of_a_rank(cluster: Cluster) -> None:
    """Who gets three times as much takes as long as an even exchange of three times the size; so does who sends it."""
    even, three = [64 * MIB] * 8, [192 * MIB] * 8
    base = priced(cluster, "all_to_all", 512 * MIB, range(8)).duration_ns
    assert exchange(cluster, even, even) == base
    tripled = priced(cluster, "all_to_all", 3 * 512 * MIB, range(8)).duration_ns
    assert exchange(cluster, even, three) == exchange(cluster, three, even) == tripled
    assert exchange(cluster, [0] + [64 * MIB] * 7, even) == base  # what stays on the rank takes no wire


def test_traffic_between_nodes_is_limited_by_the_rank_s_port(cluster: Cluster) -> None:
    """Of the same bytes: all for the own node, all for the other one."""
    near = exchange(cluster, [GIB] * 8 + [0] * 8, [0] * 16, own=3)
    far = exchange(cluster, [0] * 8 + [GIB] * 8, [0] * 16, own=3)
    ports = 8 * GIB / cluster.network_bytes_per_s * 1e9
    assert far > ports > 3 * near


def test_all_models_see_uneven_parts(cluster: Cluster) -> None:
    """A table knows even exchanges: the one that moves as much through the busier direction answers."""
    even = Collective("all_to_all", 1 << 20, "bfloat16", 0)
    rows = [
        CollectiveRow(kind="all_to_all", ranks=2, nodes=1, bytes=size, us=us)
        for size, us in ((1 << 20, 10), (1 << 22, 30))
    ]
    splits = Splits(0, (0, 1 << 19), (0, 1 << 21))
    prices = [
        Measured(rows).alone(collective, Group("g", (0, 1), 2), cluster)
        for collective in (even, msgspec.structs.replace(even, splits=splits))
    ]
    assert [price.duration_ns for price in prices if price] == [10_000, 30_000]


def over_pcie(gpu: str, node: str | None, ranks: int, kind: str = "all_reduce", **environment: str) -> Price:
    cluster = hardware.choose_cluster(gpu=gpu, node=node, nodes=1, gpus_per_node=ranks)
    collective = Collective(kind=kind, bytes=GIB, dtype="float32", group=0)
    return Hierarchical(environment).alone(collective, Group("g", tuple(range(ranks)), ranks), cluster)


@pytest.mark.parametrize(
    ("gpu", "node", "ranks", "published", "tolerance"),
    [
        ("rtx-4090", "pcie4-8-switch", 4, 25.9, 0.25),  # tinygrad/open-gpu-kernel-modules issue 36
        ("rtx-pro-6000", "pcie5-8-switch", 8, 40.1, 0.05),  # voipmonitor/rtx6kpro
        ("rtx-pro-6000", None, 8, 22.2, 0.1),  # the same, two EPYC without a switch
        ("rtx-pro-6000", None, 2, 43.9, 0.15),  # NVIDIA/nccl pull request 2036
    ],
)
def test_the_exchange_bandwidth_of_a_node_limits_groups_on_pcie(
    gpu: str, node: str | None, ranks: int, published: float, tolerance: float
) -> None:
    price = over_pcie(gpu, node, ranks)
    assert bus_GBps(price, GIB, ranks, 2) == pytest.approx(published, rel=tolerance)
    assert tolerance <= price.uncertainty


def test_a_pair_is_not_limited_by_the_exchange_bandwidth() -> None:
    assert over_pcie("l40s", "ovx-l40s", 2) == over_pcie("l40s", "l40s-8", 2)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all"])
def test_a_known_exchange_bandwidth_limits_all_kinds_and_reduces_uncertainty(kind: str) -> None:
    """A rank's own part, which gathers and all-to-alls copy on the GPU, does not cross it."""
    known, unknown = (over_pcie("l40s", node, 4, kind) for node in ("ovx-l40s", "l40s-8"))
    assert unknown.duration_ns == pytest.approx(2 * known.duration_ns, rel=0.02)
    assert unknown.uncertainty == known.uncertainty + 0.25


def test_exchange_bandwidth_never_exceeds_the_link() -> None:
    cluster = hardware.choose_cluster(gpu="l40s", node="ovx-l40s")
    node = msgspec.structs.replace(cluster.node, exchange_bytes_per_s=1e12)
    wide = msgspec.structs.replace(cluster, node=node, nodes=1, gpus_per_node=4)
    narrow = msgspec.structs.replace(wide, node=msgspec.structs.replace(node, exchange_bytes_per_s=5e9))
    assert priced(wide, "all_reduce", GIB, range(4)) == over_pcie("l40s", "ovx-l40s", 4)
    assert bus_GBps(priced(narrow, "all_reduce", GIB, range(4)), GIB, 4, 2) == pytest.approx(5, rel=0.01)


def test_exchange_bandwidth_is_ignored_without_peer_to_peer() -> None:
    forbidden = over_pcie("l40s", "pcie4-8-switch", 4, NCCL_P2P_DISABLE="1")
    assert forbidden == over_pcie("l40s", "pcie4-8", 4, NCCL_P2P_DISABLE="1")
    assert forbidden.uncertainty > over_pcie("l40s", "pcie4-8-switch", 4).uncertainty


def test_the_level_of_nvlink_forbids_peer_access_over_pcie_only() -> None:
    assert over_pcie("l40s", "pcie4-8", 4, NCCL_P2P_LEVEL="NVL") == over_pcie(
        "l40s", "pcie4-8", 4, NCCL_P2P_DISABLE="1"
    )
    cluster, ranks = hardware.choose_cluster(gpu="h100-sxm"), range(8)
    usual, nvlink_only = (
        Hierarchical(nccl).alone(Collective("all_reduce", GIB, "bfloat16", 0), Group("g", tuple(ranks), 8), cluster)
        for nccl in ({}, {"NCCL_P2P_LEVEL": "NVL"})
    )
    assert nvlink_only == usual


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        (
            "link",
            {"multicast_channel_GBps": 1e-300},
            r"Expected `float` >= 0.001, not 1e-300 - at `\$.multicast_channel_GBps`",
        ),
        ("link", {"efficiency": [0.0, 0.4, 0.8]}, r"Expected `float` >= 1e-06, not 0.0 - at `\$.efficiency\[0\]`"),
        ("link", {"crowd": 0}, r"Expected `float` >= 1e-06, not 0 - at `\$.crowd`"),
        ("link", {"base_us": [1.0, -2.0, 1.0]}, r"Expected `float` >= 0.0, not -2.0 - at `\$.base_us\[1\]`"),
        ("fabric", {"direct_efficiency": 0}, r"Expected `float` >= 1e-06, not 0 - at `\$.direct_efficiency`"),
        ("fabric", {"hops": 1e308}, r"Expected `float` <= 1000000.0, not 1e\+308 - at `\$.hops`"),
    ],
)
def test_constants_that_no_link_has_are_refused(part: str, values: dict[str, object], message: str) -> None:
    """They would divide by zero, or take longer than 64 bits of nanoseconds."""
    cluster = hardware.choose_cluster(gpu="h100-sxm", nodes=2)
    fitted = msgspec.structs.replace(cluster, collectives={part: values})
    with pytest.raises(InputError, match=rf"^the cluster's \[collectives.{part}\] is invalid: {message}; create it"):
        priced(fitted, "all_reduce", 1 << 20, range(16))
