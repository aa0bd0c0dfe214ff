"""Topologies in the forms of other tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from presim.errors import InputError
from presim.hardware.network import topology
from presim.hardware.network.exchange import Exchange, run
from presim.hardware.network.open import bytes_of, exported, open_network, ranks_of
from support.reliability.samples import HTSIM, NCCL, SIMAI

ASTRA = """
topology: [ FullyConnected, Switch ]
npus_count: [ 4, 2 ]
bandwidth: [ 300.0, 50.0 ]  # GB/s
latency: [ 500.0, 1000.0 ]  # ns
"""
SMI = """
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity
GPU0\t X \tNV4\tSYS\tSYS\t0-15
GPU1\tNV4\t X \tSYS\tSYS\t0-15
GPU2\tSYS\tSYS\t X \tNV4\t16-31
GPU3\tSYS\tSYS\tNV4\t X \t16-31
"""
NS3 = """6 2 5
1 4
0 1 200Gbps 500ns 0
2 1 200Gbps 500ns 0
3 4 200Gbps 500ns 0
5 4 200Gbps 500ns 0
1 4 100Gbps 0.5us 0
First line: total node #, switch node #, link #
"""


@pytest.mark.parametrize(
    ("name", "text", "gpus", "pair", "GBps"),
    [
        ("two.yml", ASTRA, 8, (0, 1), 100),
        ("two.yml", ASTRA, 8, (0, 4), 50),
        ("simai", SIMAI, 4, (0, 2), 12.5),
        ("ns3", NS3, 4, (0, 1), 25),
        ("ns3", NS3, 4, (1, 3), 12.5),
        ("tree.topo", HTSIM, 16, (0, 15), 25),
        ("smi.txt", SMI, 4, (0, 1), 100),
        ("smi.txt", SMI, 4, (0, 2), 15),
        ("topo.xml", NCCL, 2, (0, 1), 300),
    ],
)
def test_a_message_has_the_bandwidth_of_its_path(
    tmp_path: Path, name: str, text: str, gpus: int, pair: tuple[int, int], GBps: float
) -> None:
    path = tmp_path / name
    path.write_text(text)
    network = open_network(path)
    assert network.gpus == gpus
    outcome = run(network, [Exchange("send", 10**9, pair)])
    assert outcome.shared is not None
    assert outcome.shared.seconds == pytest.approx(1 / GBps)


def test_a_fat_tree_of_htsim_has_full_bisection(tmp_path: Path) -> None:
    """Every host of one half sends to one of the other half at its port's speed, if paths do not collide."""
    path = tmp_path / "tree.topo"
    path.write_text(HTSIM)
    network = open_network(path)
    up = [link for link in range(network.links) if network.names[int(network.target[link])].startswith("tier1")]
    assert network.bandwidth_Bps[up].sum() == pytest.approx(16 * 25e9)


@pytest.mark.parametrize(
    "network",
    [
        "leaf_nodes = 1\noversubscription = 4.0",
        "leaf_nodes = 1\nlevels = 3\npod_leaves = 2\ncore_oversubscription = 2.0",
        'fabric = "rail"\nleaf_nodes = 2\noversubscription = 2.0\nrelay = false',
        "leaf_nodes = 2\nnics = 4",
        'fabric = "torus"\ndims = [2, 2]\nfactors = {"node1.router" = 0.5}',
        'leaf_nodes = 1\nnode = "pcie"',
    ],
)
@pytest.mark.parametrize("tool", ["ns3", "simai"])
def test_an_exported_network_takes_as_long(tmp_path: Path, network: str, tool: str) -> None:
    path, copy = tmp_path / "cluster.toml", tmp_path / "copy.txt"
    path.write_text(f'gpu = "h100-sxm"\nnodes = 4\ngpus_per_node = 8\n[network]\n{network}\n')
    copy.write_text(exported(path, tool))
    exchanges = [Exchange("all_to_all", 10**9, tuple(range(2, 32, 4)))]
    # ns-3's lists show neither the nodes of PCIe trees nor that GPUs do not meet at a port that they share.
    if tool == "simai" or not any(word in network for word in ("pcie", "nics")):
        exchanges.append(Exchange("all_reduce", 10**9, tuple(range(32))))
    for exchange in exchanges:
        seconds = [run(open_network(form), [exchange]).seconds for form in (path, copy)]
        assert seconds[0] == pytest.approx(seconds[1], rel=1e-6)
    if tool == "ns3":
        assert exported(copy, tool) == copy.read_text()


@pytest.mark.parametrize(
    ("links", "gpus_per_node"),
    [
        ("0 4 200Gbps 1us 0\n1 4 200Gbps 1us 0\n2 4 200Gbps 1us 0\n3 4 200Gbps 1us 0\n", 1),  # hosts of one port
        ("0 1 900Gbps 1us 0\n2 3 900Gbps 1us 0\n1 4 200Gbps 1us 0\n2 4 200Gbps 1us 0\n", 2),  # pairs
        ("0 2 900Gbps 1us 0\n1 3 900Gbps 1us 0\n1 4 200Gbps 1us 0\n2 4 200Gbps 1us 0\n", 1),  # pairs not in a row
        ("0 1 900Gbps 1us 0\n1 2 900Gbps 1us 0\n2 3 900Gbps 1us 0\n3 4 200Gbps 1us 0\n", 4),  # a chain
    ],
)
def test_links_between_hosts_of_ns3_make_nodes(tmp_path: Path, links: str, gpus_per_node: int) -> None:
    path = tmp_path / "list.txt"
    path.write_text(f"5 1 4\n4\n{links}")
    assert open_network(path).gpus_per_node == gpus_per_node


@pytest.mark.parametrize(
    ("network", "uplink_GBps"),
    [
        ("leaf_nodes = 2\noversubscription = 4.0", 4 * 4 * 50),
        ("leaf_nodes = 2\nlevels = 3\npod_leaves = 2\ncore_oversubscription = 2.0", 4 * 16 * 50),
        ("leaf_nodes = 8", 0),
    ],
)
def test_a_fat_tree_for_htsim_has_the_described_uplinks(tmp_path: Path, network: str, uplink_GBps: float) -> None:
    path, copy = tmp_path / "cluster.toml", tmp_path / "copy.topo"
    path.write_text(f'gpu = "h100-sxm"\nnodes = 8\n[network]\n{network}\n')
    copy.write_text(exported(path, "htsim"))
    tree = open_network(copy)
    assert tree.gpus == 64
    up = [link for link in range(tree.links) if tree.names[int(tree.target[link])].startswith("tier1")]
    up = [link for link in up if tree.names[int(tree.source[link])].startswith("tier0")]
    assert tree.bandwidth_Bps[up].sum() == pytest.approx(uplink_GBps * 1e9)


@pytest.mark.parametrize(
    ("network", "tool", "message"),
    [
        ('fabric = "ring"', "htsim", "this network is a ring or has links"),
        ("leaf_nodes = 3\noversubscription = 7.0", "htsim", "choose counts that divide"),
    ],
)
def test_what_a_form_cannot_state_is_refused(tmp_path: Path, network: str, tool: str, message: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(f'gpu = "h100-sxm"\nnodes = 8\n[network]\n{network}\n')
    with pytest.raises(InputError, match=message):
        exported(path, tool)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "hello", "has no known topology format: presim reads cluster files"),
        ("a.yml", "topology: [Ring]", "'npus_count'; it looks like a topology of astra_sim, but is invalid"),
        ("a.yml", ASTRA.replace("[ 4, 2 ]", "[ 4 ]"), "2 dimensions have 1 counts, 2 bandwidths and 2 latencies"),
        ("a.yml", ASTRA.replace("Switch", "Star"), "ASTRA-sim's topology 'Star' is not supported; use Ring"),
        ("a", SIMAI.replace("4 5 100Gbps", "4 9 100Gbps"), "a link connects 4 and 9, but there are 6 vertices"),
        ("a", SIMAI.replace("2 5 A100", "2 7 A100"), "the header announces 7 links, but the file has 5"),
        ("a", NS3.replace("1 4", "1 1", 1), "announces 2 switches below 6, and the second line names 1: 1"),
        ("a", NS3.replace("6 2 5", "2 2 5"), "at least one vertex is a host"),
        ("a", NS3.replace("5 4 200Gbps", "-5 4 200Gbps"), "a link connects -5 and 4, but there are 6 vertices"),
        ("a.xml", "<system", "the file is not valid XML"),
        ("a.txt", SMI.replace("SYS", "XYZ"), "GPU0 reaches GPU2 by 'XYZ', but expected is one of NV#"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        open_network(path)


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ns3"
    path.write_text(NS3.replace("0 1 200Gbps", "1 1 200Gbps"))
    with pytest.raises(InputError, match="a link leads from switch1 to itself"):
        open_network(path)


def test_a_pair_that_cannot_reach_each_other_is_named(tmp_path: Path) -> None:
    path = tmp_path / "simai"
    path.write_text(SIMAI.replace("6 2 0 2 5 A100", "6 2 0 2 4 A100"))
    with pytest.raises(InputError, match=r"gpu0 cannot reach gpu2 in .* add a link between their parts"):
        run(open_network(path), [Exchange("send", 1, (0, 2))])


@pytest.mark.parametrize(("call", "text"), [(bytes_of, "1 parsec"), (ranks_of, "0..3")])
def test_a_size_or_ranks_that_are_none_are_refused(call: Callable[[str], object], text: str) -> None:
    with pytest.raises(InputError, match=r"is not a size|is not a list of ranks"):
        call(text)


@pytest.mark.parametrize(
    ("counts", "says"),
    [("[ 99999999, 2 ]", "1 to 262,144 GPUs, not 199,999,998"), ("[ 0, 2 ]", "not 0"), ("[ 90, 2 ]", "than 100 links")],
)
def test_a_treethat_is_too_large_is_refused(
    tmp_path: Path, counts: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "MOST_LINKS", 100)
    path = tmp_path / "big.yml"
    path.write_text(ASTRA.replace("[ 4, 2 ]", counts))
    with pytest.raises(InputError, match=says):
        open_network(path)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ("\tGPU0\tGPU1\nGPU0\t X \tSYS\n", "the matrix has 2 GPUs in its head, 1 rows and 2 columns of GPUs; give the"),
        (
            "\tGPU0\tGPU1\nGPU0\t X \nGPU1\tSYS\t X \n",
            "the matrix has 2 GPUs in its head, 2 rows and 1 columns of GPUs",
        ),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tXX\t X \n", "GPU0 reaches GPU1 by 'NV18', and is reached by 'XX'; give"),
    ],
)
def test_a_torn_matrix_of_nvidia_smi_is_refused(matrix: str, message: str, tmp_path: Path) -> None:
    """Before, missing rows were missing GPUs, and the lower half was not read."""
    path = tmp_path / "topo.txt"
    path.write_text(matrix)
    with pytest.raises(InputError) as error:
        open_network(path)
    assert str(error.value).startswith(message)
