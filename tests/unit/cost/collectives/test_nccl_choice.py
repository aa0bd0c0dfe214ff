"""NCCL's choice by its own tables, beside what public logs and NCCL's debug output show."""

from __future__ import annotations

import dataclasses

import pytest

from presim.cost.collectives.group_placement import layout_of, links_of
from presim.cost.collectives.library_choice import choose
from presim.cost.collectives.nccl_choice import LL, LL128, SIMPLE, AlgorithmChoice, CollectiveQuestion, estimates
from presim.cost.collectives.nccl_environment import tuning_of
from presim.cost.collectives.nccl_rules import rules, versions
from presim.cost.collectives.ring_search import Channels, ring_channels
from presim.errors import InputError
from presim.hardware import choose_cluster
from presim.trace.collective import Collective
from presim.trace.schema import Group

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def question(
    gpu: str,
    nodes: int,
    per_node: int,
    size: int,
    kind: str = "all_reduce",
    version: str = "",
    fabric: str | None = None,
) -> CollectiveQuestion:
    cluster = choose_cluster(gpu=gpu, nodes=nodes, gpus_per_node=per_node, fabric=fabric)
    ranks = tuple(range(nodes * per_node))
    collective = Collective(kind, size, "float32", 0)
    layout = layout_of(collective, Group("g", ranks, len(ranks)), cluster)
    return CollectiveQuestion(kind, float(size), layout, links_of(cluster, layout), version)


def chosen(asked: CollectiveQuestion, **environment: str) -> AlgorithmChoice:
    choice = choose(asked, tuning_of(environment))
    assert choice is not None
    return choice


def protocol(gpu: str, nodes: int, size: int, **places: str) -> int:
    return chosen(question(gpu, nodes, 8, size, **places)).protocol


@pytest.mark.parametrize(
    ("gpu", "nodes", "fabric", "rings"),
    [
        ("a100-80gb-sxm", 1, None, Channels(12, 20.0)),
        ("h100-sxm", 1, None, Channels(12, 30.0)),
        ("v100-32gb-sxm", 1, None, Channels(6, 20.0)),
        ("a100-80gb-sxm", 4, "ib-hdr-200", Channels(8, 24.0)),
        ("h100-sxm", 4, None, Channels(8, 45.0)),
    ],
)
def test_rings_are_those_that_nccl_prints(gpu: str, nodes: int, fabric: str | None, rings: Channels) -> None:
    """`Pattern 4, crossNic 0, nChannels 12, bw 30.0/30.0` and alike."""
    asked = question(gpu, nodes, 8, MIB, fabric=fabric)
    assert ring_channels(asked.layout, asked.links) == rings


@pytest.mark.parametrize(("nodes", "simple_from"), [(8, 512 * MIB), (16, GIB)])
def test_jumps_of_64_and_128_a100_are_where_logs_have_them(nodes: int, simple_from: int) -> None:
    """From LL to LL128 above 128 KiB; from LL128 to Simple at half a GiB and at one."""
    protocols = [protocol("a100-80gb-sxm", nodes, size, fabric="ib-hdr-200") for size in (128 * KIB, 256 * KIB)]
    assert protocols == [LL, LL128]
    late = [protocol("a100-80gb-sxm", nodes, size, fabric="ib-hdr-200") for size in (simple_from // 2, simple_from)]
    assert late == [LL128, SIMPLE]


def test_reduction_in_the_switch_needs_eight_h100() -> None:
    """Eight heads of NVLS carry more than rings, four do not: public logs have the bend at 2 MiB on eight only."""
    assert [chosen(question("h100-sxm", 1, 8, size)).algorithm for size in (MIB, 2 * MIB)] == ["ring", "nvls"]
    assert chosen(question("h100-sxm", 1, 4, GIB)).algorithm == "ring"
    assert chosen(question("h100-sxm", 2, 8, GIB)).algorithm == "nvlstree"


def test_small_calls_use_few_channels() -> None:
    """LL of eight ranks: one more for each 32 KiB, up to the 24 of one node."""
    sizes = (KIB, 64 * KIB, 512 * KIB, MIB)
    assert [chosen(question("h100-sxm", 1, 8, size)).channels for size in sizes] == [1, 2, 16, 24]
    assert chosen(question("h100-sxm", 1, 4, GIB)).channels == 24
    assert chosen(question("h100-sxm", 4, 8, GIB)).channels == 16
    assert chosen(question("h100-sxm", 1, 8, GIB), NCCL_MAX_NCHANNELS="3").channels == 3


def test_estimates_are_those_of_nccl_s_debug_output() -> None:
    """NCCL 2.29.7, two processes over sockets of 2.4 GB/s: `AllGather | 11.6/ 2.4 | 22.5/ 0.0 | 22.4/ 4.8` of rings."""
    asked = question("rtx-5090", 2, 1, 0, "all_gather", "2.29.7")
    links = dataclasses.replace(asked.links, network_Bps=2.4e9, port_Bps=2.4e9, shared_ports=0)
    latencies, rates = {}, {}
    for size in (0, 10**9):
        sized = dataclasses.replace(asked, links=links, size=float(size))
        for estimate in estimates(sized, tuning_of({})):
            if estimate.algorithm == "ring" and size == 0:
                latencies[estimate.protocol] = estimate.seconds * 1e6
            elif estimate.algorithm == "ring":
                rates[estimate.protocol] = size / (estimate.seconds - latencies[estimate.protocol] * 1e-6) / 1e9
    assert latencies == pytest.approx({LL: 11.6, SIMPLE: 22.4}, abs=0.06)
    assert rates == pytest.approx({LL: 2.4, SIMPLE: 4.8}, abs=0.06)


def test_versions_have_their_own_rules() -> None:
    """NVLSTree takes over later since 2.28; PAT is there since 2.23."""
    assert chosen(question("h100-sxm", 2, 8, MIB, version="2.27.3")).algorithm == "nvlstree"
    assert chosen(question("h100-sxm", 2, 8, MIB, version="2.28.9")).algorithm == "tree"
    alone = {name: question("h100-sxm", 32, 1, 64 * KIB, "all_gather", name) for name in ("2.22.3", "2.23.4")}
    assert {name: chosen(asked).algorithm for name, asked in alone.items()} == {"2.22.3": "ring", "2.23.4": "pat"}
    assert rules("2.27.7") == rules("2.27") == rules()
    assert rules("2.18") == rules(versions()[0])
    with pytest.raises(InputError, match=r"^NCCL's version 'new' is not like 2.27 or 2.27.3; correct it$"):
        rules("new")


def test_what_the_variables_forbid_is_not_chosen() -> None:
    asked = question("h100-sxm", 2, 8, GIB)
    assert chosen(asked, NCCL_ALGO="ring", NCCL_PROTO="LL128") == dataclasses.replace(
        chosen(asked, NCCL_ALGO="ring", NCCL_PROTO="LL128"), algorithm="ring", protocol=LL128
    )
    assert chosen(asked, NCCL_NVLS_ENABLE="0").algorithm == "ring"
    assert choose(dataclasses.replace(asked, kind="all_to_all"), tuning_of({})) is None
