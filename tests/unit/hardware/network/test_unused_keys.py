"""Keys of [network] without effect are named, and only these."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from presim.errors import InputError
from presim.hardware import choose_cluster
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.topology import Topology
from presim.hardware.network.unused_keys import unused_keys_note

ONE_LEAF = {"oversubscription": 4.0}
RAIL = {"fabric": "rail", "leaf_nodes": 8, "oversubscription": 2.0}
ONE_POD = {"levels": 3, "leaf_nodes": 1, "core_oversubscription": 2.0}
DRAGONFLY = {"fabric": "dragonfly", "leaf_nodes": 1, "oversubscription": 2.0}
TREE = {"pcie_switch_gpus": 2, "socket_GBps": 20.0}
SCARCE = {"oversubscription", "core_oversubscription", *TREE}

CASES: dict[str, tuple[str, int, dict[str, Any], str]] = {
    "no table": ("h100-sxm", 4, {}, ""),
    "one node": ("h100-sxm", 1, {"leaf_nodes": 1, "nvlink_GBps": 300.0}, "leaf_nodes (all 8 GPUs are in one node or"),
    "one pod of chips": ("tpu-v5p", 4, {"fabric": "torus"}, "fabric (all 16 GPUs are in one node or NVLink domain)"),
    "one leaf": ("h100-sxm", 4, ONE_LEAF, "oversubscription (all 4 nodes are at one switch, which has 16)"),
    "two leaves": ("h100-sxm", 4, {**ONE_LEAF, "leaf_nodes": 2}, ""),
    "one leaf of each rail": ("h100-sxm", 8, RAIL, ""),  # spines join the rails
    "two leaves of each rail": ("h100-sxm", 9, RAIL, ""),
    "a hash's keys": ("h100-sxm", 9, {**RAIL, "spines": 4, "seed": 2}, "spines, seed (routing is adaptive)"),
    "one pod of two rails": ("h100-sxm", 4, {**ONE_POD, "fabric": "rail", "nics": 4}, "core_oversubscription (all sw"),
    "two pods of rails": ("h100-sxm", 4, {**ONE_POD, "fabric": "rail"}, ""),
    "one pod": ("h100-sxm", 16, ONE_POD, "core_oversubscription (all switches are in one group or pod of 16)"),
    "two pods": ("h100-sxm", 17, ONE_POD, ""),
    "one group": ("h100-sxm", 4, DRAGONFLY, "oversubscription (all switches are in one group or pod of 16)"),
    "two groups": ("h100-sxm", 4, {**DRAGONFLY, "pod_leaves": 2}, ""),
    "a tree of PCIe behind NVSwitch": (
        "h100-sxm",
        2,
        TREE,
        "pcie_switch_gpus, socket_GBps (no two GPUs of a node meet",
    ),
    "a tree of PCIe": ("l40s", 2, TREE, ""),
    "a cube mesh": ("v100-32gb-sxm", 1, TREE, ""),
    "NVLink of PCIe cards": ("l40s", 2, {"nvlink_GBps": 100.0}, "nvlink_GBps (no two GPUs have NVLink between them)"),
}


def links(topology: Topology) -> tuple[list[int], list[int], list[float]]:
    """Ends and bandwidths."""
    return topology.source.tolist(), topology.target.tolist(), topology.bandwidth_Bps.tolist()


@pytest.mark.parametrize("name", CASES)
def test_a_key_is_named_where_the_network_is_the_same_without_it(name: str) -> None:
    gpu, nodes, table, expected = CASES[name]
    cluster = choose_cluster(gpu=gpu, nodes=nodes)
    note = unused_keys_note(msgspec.structs.replace(cluster, network=table))
    assert note.startswith(f"These keys of [network] have no effect: {expected}") if expected else note == ""
    built = links(topology_of(cluster, table))
    named = set(re.findall(r"\w+", re.sub(r"\(.*?\)", "", note.partition(": ")[2])))
    for key in {*named, *(SCARCE & table.keys())}:
        rest = {other: table[other] for other in table if other != key}
        assert (links(topology_of(cluster, rest)) == built) == (key in named), key


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"levels": 1, "leaf_nodes": 2},
            "leaf_nodes has no effect in a tree of 1 level; set levels = 2, or leave it out",
        ),
    ],
)
def test_a_key_that_never_has_an_effect_is_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        topology_of(choose_cluster(gpu="h100-sxm", nodes=4), table)
    assert str(error.value) == f"[network] {message}"
