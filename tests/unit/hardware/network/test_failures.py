"""What is left of a network when parts of it fail."""

from __future__ import annotations

from typing import Any

import pytest

from presim.errors import InputError
from presim.hardware import choose_cluster
from presim.hardware.network.build_topology import topology_of
from presim.hardware.network.exchange import Exchange, run
from presim.hardware.network.failures import failure_of

CLUSTER = choose_cluster(gpu="h100-sxm", nodes=4)
TREE = {"leaf_nodes": 2}  # nodes 0 and 1 at leaf0, 2 and 3 at leaf1
NIC_BPS = CLUSTER.fabric.port_bytes_per_s


def seconds(*failed: str, ranks: tuple[int, ...] = (0, 16), **network: Any) -> float:
    """One message of a second's worth of bytes, without latencies."""
    topology = topology_of(CLUSTER, {**TREE, **network, "failed": failed})
    (outcome,) = run(topology, [Exchange("send", round(NIC_BPS), ranks)]).seconds
    return outcome


def test_a_link_that_loses_a_part_carries_the_rest() -> None:
    assert seconds() == pytest.approx(1.0, rel=1e-3)
    assert seconds("leaf0-spine0=0.9375") == pytest.approx(1.0, rel=1e-3)  # of 16 links one is left
    assert seconds("leaf0 - spine0=0.984375") == pytest.approx(4.0, rel=1e-3)
    assert seconds("node0.nic0=0.5") == pytest.approx(2.0, rel=1e-3)
    assert seconds("node1.nic0=0.5") == pytest.approx(1.0, rel=1e-3)


def test_gpus_whose_nic_is_gone_share_the_next_one() -> None:
    assert seconds("node0.nic0") == pytest.approx(1.0, rel=1e-3)
    topology = topology_of(CLUSTER, {**TREE, "failed": ("node0.nic0",)})
    both = run(topology, [Exchange("send", round(NIC_BPS), (rank, 16 + rank)) for rank in (0, 1)]).seconds
    assert both == pytest.approx((2.0, 2.0), rel=1e-3)
    assert seconds("node0.nic0", "node0.nic1") == pytest.approx(1.0, rel=1e-3)


def test_traffic_within_a_node_stays_off_a_nic_that_two_gpus_share() -> None:
    """A ring over all GPUs of the cluster: two of its eight parts leave node 0 by NIC 1, at half of its bandwidth each.

    Before NICs were no way between two GPUs, one hash in two sent NVLink's traffic over PCIe.
    """
    topology = topology_of(CLUSTER, {**TREE, "failed": ("node0.nic0",)})
    (outcome,) = run(topology, [Exchange("all_gather", round(NIC_BPS), tuple(range(32)))]).seconds
    assert outcome == pytest.approx(2 * (31 / 32) / 8, rel=1e-3)
    shared = topology_of(CLUSTER, {**TREE, "nics": 4})
    (outcome,) = run(shared, [Exchange("all_gather", round(NIC_BPS), tuple(range(32)))]).seconds
    assert outcome == pytest.approx(2 * (31 / 32) / 8, rel=1e-3)
    assert seconds("node0.nvswitch", ranks=(0, 1), nics=4) == pytest.approx(50 / 63, rel=1e-2)  # nothing else is left


def test_ecmp_takes_other_paths() -> None:
    """A spine that is gone is on no path; the others have room."""
    assert seconds("spine0", routing="ecmp", spines=16) == pytest.approx(1.0, rel=1e-3)


def test_a_pair_that_nothing_joins_any_more_is_named() -> None:
    with pytest.raises(InputError, match="reach"):
        seconds("spine0")
    assert seconds("spine0", ranks=(0, 8)) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("text", ["", "a-b-c", "leaf0-", "leaf0=0", "leaf0=2", "leaf0=half"])
def test_what_is_no_failure_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="a failure is NAME or NAME-NAME"):
        failure_of(text)


def test_what_is_not_there_cannot_fail() -> None:
    with pytest.raises(InputError, match="'leaf9', but the network has no such vertex"):
        seconds("leaf9")
    with pytest.raises(InputError, match=r"leaf0 - node3\.nic0 cannot fail: the network has no such link"):
        seconds("leaf0-node3.nic0")
