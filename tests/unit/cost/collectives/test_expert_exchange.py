"""Exchanges of experts: what crosses which wires, held against published bandwidths."""

from __future__ import annotations

import pytest

from presim import hardware
from presim.cost.collectives.expert_exchange import NAME, exchanged_bytes
from presim.cost.collectives.group_placement import layout_of
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.resource_demand import demand
from presim.hardware import Cluster
from presim.trace.collective import Collective, Routed
from presim.trace.even_routing import distinct
from presim.trace.schema import Group

TOKENS, TOKEN = 4096, 7168 * 2  # in bf16


def exchange(kind: str, ranks: int, experts: int, library: str = "hybridep", sms: int = 16) -> Collective:
    routed = Routed(library, TOKENS, TOKEN, 8, experts, sms)
    return Collective(kind, TOKENS * TOKEN, "bfloat16", 0, routed=routed)


def seconds(found: Collective, ranks: int, cluster: Cluster) -> float:
    price = Hierarchical().alone(found, Group("experts", tuple(range(ranks)), ranks), cluster)
    assert price.estimator == NAME
    return price.duration_ns * 1e-9


@pytest.mark.parametrize(
    ("kind", "ranks", "published_GBps"),
    [("dispatch", 8, 750), ("combine", 8, 684), ("dispatch", 16, 662), ("combine", 32, 547), ("dispatch", 36, 613)],
)
def test_hybridep_on_one_rack_is_near_its_table(kind: str, ranks: int, published_GBps: float) -> None:
    """GB200, 8 experts a rank, 16 SMs, kernels alone; the table counts all copies that a rank receives."""
    cluster = hardware.choose_cluster(gpu="gb200", nodes=9)
    copies = distinct(ranks, 8 * ranks, 8) * TOKENS * TOKEN
    found = copies / seconds(exchange(kind, ranks, 8 * ranks), ranks, cluster) * 1e-9
    assert found == pytest.approx(published_GBps, rel=0.15)


@pytest.mark.parametrize(("ranks", "published_GBps"), [(32, 57.7), (64, 50.0)])
def test_hybridep_between_hosts_is_near_its_table(ranks: int, published_GBps: float) -> None:
    """H100: the table counts one copy a host, the rank's own host among them."""
    cluster = hardware.choose_cluster(gpu="h100-sxm", nodes=8)
    copies = distinct(ranks // 8, 8 * ranks, 8) * TOKENS * TOKEN
    found = copies / seconds(exchange("dispatch", ranks, 8 * ranks), ranks, cluster) * 1e-9
    assert found == pytest.approx(published_GBps, rel=0.15)


def test_deepep_is_limited_by_the_bandwidth_of_its_sms() -> None:
    """B200: 16 SMs 348 GB/s and 24 SMs 494 GB/s of dispatch in bf16, through PyTorch."""
    cluster = hardware.choose_cluster(gpu="b200", nodes=1)
    copies = distinct(8, 64, 8) * TOKENS * TOKEN
    for sms, published_GBps in ((16, 348), (24, 494)):
        found = copies / seconds(exchange("dispatch", 8, 64, "deepep", sms), 8, cluster) * 1e-9
        assert found == pytest.approx(published_GBps, rel=0.15)


def test_every_window_of_tokens_costs_a_notification() -> None:
    """Four B200: 12 channels send 307 tokens of 4 KiB to each rank, in windows; telling it takes 9.1 us."""
    cluster = hardware.choose_cluster(gpu="b200", nodes=1, gpus_per_node=4)

    def took(window: int, sms: int = 24) -> float:
        routed = Routed("deepep", TOKENS, 4096, 8, 128, sms, window=window)
        return seconds(Collective("dispatch", TOKENS * 4096, "bfloat16", 0, routed=routed), 4, cluster)

    windows = TOKENS * distinct(4, 128, 8) / 4 / 12
    assert took(8) - took(32) == pytest.approx(9.1e-6 * windows * (1 / 8 - 1 / 32), rel=1e-3)
    assert took(0) == took(32)  # as well as can be
    assert took(8, sms=48) < took(8)
    assert took(8) == pytest.approx(518e-6, rel=0.1)  # measured


def test_fp8_scaling_factors_and_forwarding_add_time() -> None:
    """Factors of a token take a warp 0.62 us; towards one other host DeepEP's port gives 0.55 of its bandwidth."""
    routed = Routed("deepep", TOKENS, 2048, 8, 64, 20, window=6)
    cluster, group = hardware.choose_cluster(gpu="h100-sxm", nodes=1), Group("g", tuple(range(8)), 8)
    plain, scaled = (
        Hierarchical().alone(Collective("dispatch", 1, dtype, 0, routed=routed), group, cluster).duration_ns
        for dtype in ("bfloat16", "float8_e4m3fn")
    )
    assert scaled - plain == pytest.approx(620 * TOKENS * distinct(8, 64, 8) / 10 / 24, rel=1e-3)
    two, found = hardware.choose_cluster(gpu="h100-sxm", nodes=2), exchange("combine", 16, 128, "deepep", 24)
    layout = layout_of(found, Group("g", tuple(range(16)), 16), two)
    assert found.routed is not None
    far = exchanged_bytes(found.routed, layout).port_bytes / (0.55 * two.network_bytes_per_s)
    assert seconds(found, 16, two) == pytest.approx(far + 105e-6, rel=1e-3)


@pytest.mark.parametrize(
    ("ranks", "dispatch_us", "combine_us"),
    [(8, 77, 114), (16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369), (256, 194, 360)],
)
def test_low_latency_is_near_its_table(ranks: int, dispatch_us: float, combine_us: float) -> None:
    """H800, 128 tokens of 7168 to 8 experts, FP8 there and bf16 back; constants know 8 to 32 ranks only."""
    cluster = hardware.choose_cluster(gpu="h800", nodes=ranks // 8, fabric="ib-ndr-400")
    for kind, token, published_us in (("dispatch", 7168 + 224, dispatch_us), ("combine", TOKEN, combine_us)):
        routed = Routed("deepep-low-latency", 128, token, 8, 256, 0)
        found = seconds(Collective(kind, 128 * token, "uint8", 0, routed=routed), ranks, cluster)
        assert found == pytest.approx(published_us * 1e-6, rel=0.04 if ranks <= 32 else 0.09)


def test_a_token_goes_to_each_of_its_experts_in_low_latency() -> None:
    """Of 16 ranks seven others share its links, and eight are beyond its port; experts are spread evenly."""
    cluster = hardware.choose_cluster(gpu="h100-sxm", nodes=2)
    routed = Routed("deepep-low-latency", 1, 160, 4, 64, 0)
    found = Collective("dispatch", 160, "uint8", 0, routed=routed)
    bytes_ = exchanged_bytes(routed, layout_of(found, Group("g", tuple(range(16)), 16), cluster))
    assert (bytes_.link_bytes, bytes_.port_bytes) == (4 * 160 * 7 / 16, 4 * 160 * 8 / 16)


def test_a_token_is_sent_once_to_each_host() -> None:
    """With as many experts chosen as there are, every other host gets one copy, every other rank of the host one."""
    cluster = hardware.choose_cluster(gpu="h100-sxm", nodes=2)
    routed = Routed("deepep", 1, 10, 16, 16, 20)
    found = Collective("dispatch", 10, "uint8", 0, routed=routed)
    bytes_ = exchanged_bytes(routed, layout_of(found, Group("g", tuple(range(16)), 16), cluster))
    assert (bytes_.link_bytes, bytes_.port_bytes) == (10 * 16 * 7 / 8, 10)


def test_round_robin_routing_sends_fewer_bytes() -> None:
    """Eight consecutive ones of 128 are half of a rank's 16: one host, and mostly one rank, gets a token."""
    cluster = hardware.choose_cluster(gpu="h100-sxm", nodes=1)
    in_turn = Routed("deepep", 10, 10, 8, 128, 20, (1.0, 1.0, 1.0, 1.0))
    found = Collective("dispatch", 100, "uint8", 0, routed=in_turn)
    bytes_ = exchanged_bytes(in_turn, layout_of(found, Group("g", tuple(range(8)), 8), cluster))
    assert (bytes_.link_bytes, bytes_.port_bytes) == (100 * 7 / 8, 0)


def test_an_exchange_occupies_its_sms() -> None:
    cluster = hardware.choose_cluster(gpu="h100-sxm", nodes=2)
    found, group = exchange("combine", 16, 128), Group("g", tuple(range(16)), 16)
    asked = demand(found, Hierarchical().alone(found, group, cluster), (group,), cluster)
    assert asked.channels == pytest.approx(16 / 132, abs=1 / 64)
    assert asked.port_out > 0.8
