"""Which cluster a command line means, and what it says to one that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.hardware import catalogue, choose_cluster
from presim.hardware.cluster import Cluster

COUNTS = st.one_of(st.none(), st.integers(1, 70))


@pytest.mark.parametrize(
    ("options", "nodes", "gpus_per_node"),
    [
        ({}, 1, 1),
        ({"nodes": 16, "gpus_per_node": 8}, 16, 8),
        ({"nodes": 16}, 16, 8),
        ({"gpus_per_node": 4}, 1, 4),
        ({"world_size": 4}, 1, 4),
        ({"world_size": 128}, 16, 8),
        ({"world_size": 12, "nodes": 2}, 2, 6),
        ({"world_size": 12, "gpus_per_node": 6}, 2, 6),
        ({"world_size": 16, "gpus_per_node": 8, "nodes": 2}, 2, 8),
    ],
)
def test_missing_counts_follow_from_the_others(options: dict[str, int], nodes: int, gpus_per_node: int) -> None:
    cluster = choose_cluster(gpu="h100", **options)  # type: ignore[arg-type]
    assert (cluster.nodes, cluster.gpus_per_node) == (nodes, gpus_per_node)
    assert (cluster.gpu.id, cluster.node.id, cluster.fabric.id) == ("h100-sxm", "hgx-h100", "ib-ndr-400")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no GPU is named: use --gpu, e.g. --gpu h100-sxm; `presim hardware list` shows all."),
        (
            {"gpu": "h100", "world_size": 12},
            "world size 12 is not a multiple of 8 GPUs per node: use --nodes with --gpus-per-node instead, "
            "e.g. --nodes 2 --gpus-per-node 6, or a world size of 8 or 16.",
        ),
        (
            {"gpu": "h100", "world_size": 3, "gpus_per_node": 8},
            "world size 3 is not a multiple of 8 GPUs per node: use --nodes with --gpus-per-node instead, "
            "e.g. --nodes 1 --gpus-per-node 3, or a world size of 8.",
        ),
        (
            {"gpu": "h100", "world_size": 12, "nodes": 5},
            "world size 12 cannot be spread over 5 nodes evenly: use --nodes 4.",
        ),
        (
            {"gpu": "h100", "nodes": 10**20},
            f"{10**20} nodes x 8 GPUs are more than the 1,048,576 ranks that a job may have.",
        ),
        (
            {"gpu": "h100", "gpus_per_node": 16},
            "16 GPUs per node are more than the 8 of hgx-h100: use --gpus-per-node 8 and more --nodes, "
            "or describe your own node type (docs/guide/hardware.md).",
        ),
        (
            {"gpu": "h100", "nodes": 2, "gpus_per_node": 8, "world_size": 32},
            "2 nodes x 8 GPUs per node are 16 ranks, not a world size of 32; omit one of the three.",
        ),
        ({"gpu": "h100", "nodes": 0}, "--nodes is 0: it must be a whole number of at least 1."),
        ({"gpu": "h100", "nodes": "2"}, "--nodes is '2': it must be a whole number of at least 1."),
        ({"gpu": 7}, "gpu = 7 must be a name, a path or a table; correct it."),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_with_its_numbers(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        choose_cluster(**options)
    assert str(raised.value) == message


@given(nodes=COUNTS, gpus_per_node=COUNTS, world_size=COUNTS)
def test_a_cluster_has_exactly_the_requested_gpus_or_is_refused(
    nodes: int | None, gpus_per_node: int | None, world_size: int | None
) -> None:
    try:
        cluster = choose_cluster(gpu="a100", nodes=nodes, gpus_per_node=gpus_per_node, world_size=world_size)
    except InputError:
        return
    assert cluster.nodes == (nodes or cluster.nodes)
    assert cluster.gpus_per_node == (gpus_per_node or cluster.gpus_per_node) <= 8
    assert cluster.world_size == (world_size or cluster.world_size)


@given(gpu=st.sampled_from(catalogue.gpus()), nodes=st.integers(1, 40), data=st.data())
def test_a_node_lies_in_one_domain(gpu: Any, nodes: int, data: st.DataObject) -> None:
    per_node = data.draw(st.integers(1, catalogue.node(gpu.default_node).gpus))
    cluster = choose_cluster(gpu=gpu.id, nodes=nodes, gpus_per_node=per_node)
    for first in range(0, cluster.world_size, per_node):
        assert len({cluster.domain(rank) for rank in range(first, first + per_node)}) == 1
    assert 0 < cluster.network_bytes_per_s <= max(cluster.pcie_bytes_per_s, gpu.c2c_bytes_per_s)
    assert cluster.link_bytes_per_s > 0
    assert msgspec.json.decode(msgspec.json.encode(cluster), type=Cluster) == cluster


def test_hosts_of_a_rack_share_one_nvlink_domain() -> None:
    cluster = choose_cluster(gpu="gb200", nodes=36)
    assert (cluster.gpus_per_node, cluster.domain_size) == (4, 72)
    assert [cluster.domain(rank) for rank in (0, 71, 72, 143)] == [0, 0, 1, 1]
    assert choose_cluster(gpu="gb200", nodes=2, gpus_per_node=72).domain_size == 72


@pytest.mark.parametrize(("gpus", "domain"), [(8, 8), (72, 72), (128, 64), (256, 64), (1152, 72), (76, 40)])
def test_a_job_of_several_racks_has_as_many_hosts_in_each(gpus: int, domain: int) -> None:
    assert choose_cluster(gpu="gb200", world_size=gpus).domain_size == domain


def test_a_port_is_shared_by_the_gpus_that_use_it() -> None:
    per_gpu = {
        (8, "ib-ndr-400"): 50e9,
        (8, "efa-p4d-400"): 6.25e9,
        (8, "efa-p5-3200"): 50e9,
        (8, "ethernet-100"): 12.5e9 / 8,
        (2, "ethernet-100"): 12.5e9 / 2,
    }
    for (gpus, fabric), expected in per_gpu.items():
        cluster = choose_cluster(gpu="h100", fabric=fabric, nodes=2, gpus_per_node=gpus)
        assert cluster.network_bytes_per_s == pytest.approx(expected)


def test_a_gpu_uses_the_port_next_to_it_and_has_it_whole_while_its_neighbours_do_not() -> None:
    """Eight GPUs on four ports of 12.5 GB/s: GPUs 0 and 1 share one, 0 and 2 do not."""
    cluster = choose_cluster(gpu="a100", fabric="efa-p4d-400", nodes=2)
    assert [cluster.port(rank) for rank in range(16)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    alone = {places: cluster.network_bytes_per_s_of(places) for places in ((0,), (0, 1), (0, 2), tuple(range(8)))}
    assert alone == {(0,): 12.5e9, (0, 1): 6.25e9, (0, 2): 12.5e9, tuple(range(8)): 6.25e9}
    whole = choose_cluster(gpu="h100", nodes=2)
    assert whole.ports_of(range(8)) == 0
    assert whole.network_bytes_per_s_of((3,)) == whole.network_bytes_per_s == 50e9


def test_a_port_is_no_faster_than_the_gpu_that_has_it_alone() -> None:
    """Of a port of 100 GB/s a GPU on PCIe 4 gets what its slot carries."""
    cluster = choose_cluster(gpu="a40", fabric="ib-xdr-800", nodes=2, gpus_per_node=8)
    assert cluster.network_bytes_per_s_of((0,)) == cluster.pcie_bytes_per_s < cluster.fabric.port_bytes_per_s


@pytest.mark.parametrize(
    ("ports", "expected"), [(3, [0, 0, 0, 1, 1, 1, 2, 2]), (1, [0] * 8), (5, [0, 0, 1, 1, 2, 3, 3, 4])]
)
def test_ports_that_do_not_divide_the_gpus_are_all_used(ports: int, expected: list[int]) -> None:
    cluster = choose_cluster(gpu="h100", nodes=2)
    cluster = msgspec.structs.replace(cluster, node=msgspec.structs.replace(cluster.node, nics=ports))
    assert [cluster.port(rank) for rank in range(8)] == expected
    assert cluster.port(8) == ports
    assert cluster.network_bytes_per_s == pytest.approx(min(ports / 8, 1) * 50e9)


def test_gpus_without_links_use_pcie() -> None:
    assert choose_cluster(gpu="l40s", gpus_per_node=8).link_bytes_per_s == pytest.approx(31.5e9, rel=0.01)
    assert choose_cluster(gpu="h100", gpus_per_node=8).link_bytes_per_s == 450e9
    h100_in_an_older_box = choose_cluster(gpu="h100-pcie", node="pcie4-8", gpus_per_node=8)
    assert h100_in_an_older_box.link_bytes_per_s == pytest.approx(31.5e9, rel=0.01)


CLUSTER = """
gpu = "h100"
node = "mine.toml"
nodes = 4

[fabric]
base = "ib-ndr-400"
oversubscription = 2.0
"""


@pytest.fixture
def cluster_file(tmp_path: Path) -> Path:
    (tmp_path / "mine.toml").write_text('base = "hgx-h100"\nnics = 4\n')
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    return path


def test_a_cluster_file_names_parts_or_writes_them_out(cluster_file: Path) -> None:
    cluster = choose_cluster(cluster=cluster_file)
    assert (cluster.nodes, cluster.gpus_per_node) == (4, 8)
    assert (cluster.node.id, cluster.node.nics) == ("mine", 4)
    assert cluster.fabric.oversubscription == 2.0
    assert cluster.network_bytes_per_s == 25e9


def test_options_override_a_cluster_file(cluster_file: Path) -> None:
    assert choose_cluster(cluster=cluster_file, gpu="h200").gpu.id == "h200"
    assert choose_cluster(cluster=cluster_file, world_size=16).nodes == 2
    assert choose_cluster(cluster=cluster_file, fabric="roce-400").fabric.id == "roce-400"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'gpus = "h100"',
            "unknown key gpus; a cluster has gpu, node, fabric, nodes, gpus_per_node, world_size, "
            "nccl, collectives, network, groups, see docs/guide/hardware.md.",
        ),
        ('gpu = "h100"\nnodes = 0', "nodes = 0 must be a whole number of at least 1; correct it."),
        ("gpu = 100", "gpu = 100 must be a name, a path or a table; correct it."),
        ('[nccl]\nALGO = "Ring"', "[nccl] has ALGO, which is not a variable of NCCL (NCCL_…); correct it."),
    ],
)
def test_a_bad_cluster_file_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        choose_cluster(cluster=path)
    assert str(raised.value) == f"{path}: {message}"


def test_collectives_of_a_file_are_those_of_its_own_wires(tmp_path: Path) -> None:
    """Other counts leave them; another GPU, node or fabric has others."""
    path = tmp_path / "own.toml"
    path.write_text('gpu = "h100-sxm"\nnodes = 2\n[collectives]\nmodel = "white-box"\n')
    assert choose_cluster(cluster=path, nodes=4).collectives == {"model": "white-box"}
    assert choose_cluster(cluster=path, gpu="h100-sxm").collectives == {"model": "white-box"}
    assert choose_cluster(cluster=path, gpu="h200").collectives == {}
    assert choose_cluster(cluster=path, fabric="ib-hdr-200").collectives == {}


def test_nodes_without_network_ports_are_refused(tmp_path: Path) -> None:
    """A figure may round to none, too."""
    for nics in ("0", "1e-308"):
        node = tmp_path / "node.toml"
        node.write_text(f'base = "hgx-h100"\nnics = {nics}\n')
        assert choose_cluster(gpu="h100-sxm", node=str(node), nodes=1).nodes == 1
        with pytest.raises(InputError, match=r"2 nodes cannot reach each other: .* has 0 network ports \(nics\); give"):
            choose_cluster(gpu="h100-sxm", node=str(node), nodes=2)


@pytest.mark.parametrize("option", ["gpu", "node", "fabric"])
def test_an_empty_name_is_refused(option: str) -> None:
    """As of a shell's variable that is not set; it counted as not given, and the usual one was taken."""
    with pytest.raises(InputError, match=f"^--{option} is empty: leave it out, or name one"):
        choose_cluster(**{"gpu": "h100-sxm", option: ""})
