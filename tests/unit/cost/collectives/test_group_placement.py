"""Where a group's ranks sit, and which wires they use."""

from __future__ import annotations

import msgspec
import pytest

from presim import hardware
from presim.cost.collectives.group_placement import GroupPlacement, layout_of, links_of
from presim.hardware import Cluster
from presim.trace.schema import Group
from presim.trace.signatures import Collective

GATHER = Collective(kind="all_gather", bytes=1, dtype="uint8", group=0)


@pytest.fixture
def cluster() -> Cluster:
    return hardware.choose_cluster(gpu="h100-sxm", nodes=16)


@pytest.mark.parametrize(
    ("ranks", "layout"),
    [
        (range(8), GroupPlacement(8, 1, 8)),
        (range(128), GroupPlacement(128, 16, 8)),
        (range(0, 128, 8), GroupPlacement(16, 16, 1)),
        (range(0, 16, 4), GroupPlacement(4, 2, 2)),
        ((5,), GroupPlacement(1, 1, 1)),
    ],
)
def test_ranks_fill_node_after_node(cluster: Cluster, ranks: range, layout: GroupPlacement) -> None:
    group = Group("g", tuple(ranks), len(ranks))
    assert layout_of(GATHER, group, cluster) == layout


def test_unknown_ranks_are_assumed_to_be_consecutive(cluster: Cluster) -> None:
    assert layout_of(GATHER, Group("g", (), 16), cluster) == GroupPlacement(16, 2, 8, has_known_ranks=False)
    assert layout_of(GATHER, Group("g", (0, 8), 16), cluster) == GroupPlacement(16, 2, 8, has_known_ranks=False)


def test_a_rack_that_nvlink_joins_is_one_node() -> None:
    rack = hardware.choose_cluster(gpu="gb200", nodes=18)
    assert layout_of(GATHER, Group("g", tuple(range(72)), 72), rack) == GroupPlacement(72, 1, 72)


@pytest.mark.parametrize(("peer", "nodes"), [(1, 1), (8, 2), (-1, 2)])
def test_a_message_is_between_two_neighbours(cluster: Cluster, peer: int, nodes: int) -> None:
    """Rank 8 of the group sits on the second node; without a peer the slowest neighbours count."""
    send = Collective(kind="send", bytes=1, dtype="uint8", group=0, peer=peer)
    assert layout_of(send, Group("g", tuple(range(16)), 16), cluster).nodes == nodes


def test_bridges_are_not_used_by_groups_of_more_than_two() -> None:
    pairs = hardware.choose_cluster(gpu="a40", node="pcie4-8-bridged", nodes=1)
    two, four = (links_of(pairs, GroupPlacement(count, 1, count)) for count in (2, 4))
    assert two.nvlink
    assert not four.nvlink
    assert four.link_Bps == pairs.pcie_bytes_per_s


@pytest.mark.parametrize(("ranks", "bridged"), [((0, 1), True), ((6, 7), True), ((1, 2), False), ((0, 4), False)])
def test_a_bridge_joins_neighbours_from_the_first_on(ranks: tuple[int, int], bridged: bool) -> None:
    pairs = hardware.choose_cluster(gpu="h100-nvl", node="pcie5-8-bridged", nodes=1)
    assert links_of(pairs, layout_of(GATHER, Group("g", ranks, 2), pairs)).nvlink == bridged


def test_a_bridge_of_four_gives_each_pair_a_third_of_the_links() -> None:
    four = hardware.choose_cluster(gpu="h200-nvl", node="h200-nvl-4", nodes=1)
    links = links_of(four, GroupPlacement(4, 1, 4))
    assert (links.nvlink, links.switched, links.mesh) == (True, False, 4)
    assert links.link_Bps == four.gpu.nvlink_bytes_per_s


def test_an_oversubscribed_fabric_slows_all_that_leaves_a_node(cluster: Cluster) -> None:
    thin = msgspec.structs.replace(cluster.fabric, oversubscription=2.0)
    narrow = msgspec.structs.replace(cluster, fabric=thin)
    layout = GroupPlacement(16, 2, 8)
    assert links_of(narrow, layout).network_Bps == links_of(cluster, layout).network_Bps / 2
