"""Different collectives at the same time on the uplinks of leaf switches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from presim.changes import Changes
from presim.cost.collectives.uplinks import parts_of, ports_of, uplinks_of
from presim.engine.options import Options
from presim.hardware import Cluster, choose_cluster
from presim.pipeline import Evaluation, evaluate
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest, Phase
from presim.trace.signatures import Collective

WORLD = 64
BYTES = 1 << 28


def cluster(**network: Any) -> Cluster:
    return msgspec.structs.replace(choose_cluster(gpu="h100-sxm", nodes=8), network=network)


def beside(target: Cluster, *, overlap: bool, contention: bool = True) -> Evaluation:
    """All-to-alls of two kinds of groups that cross leaves: (0, 32), … and (0, 16), …, on one or two streams."""
    groups = (Group("far", (0, 32), 2), Group("near", (0, 16), 2))
    build = TraceBuilder(Manifest(world_size=WORLD, rank=0, gpu="h100-sxm", gpus_per_node=8, script="", groups=groups))
    for index, stream in enumerate((7, 11 if overlap else 7)):
        build.work(Collective("all_to_all", BYTES, "bfloat16", index), stream=stream, phase=Phase.FORWARD)
    options = Options.of(host_factor=0.0, host_time=False, contention=contention)
    return evaluate(build.trace(), target, options, stands_for={0: range(1, WORLD)}, changes=Changes())


def test_uplinks_that_carry_all_are_no_ports() -> None:
    assert uplinks_of(cluster(leaf_nodes=1)) is None
    assert ports_of(cluster()) == ()
    assert ports_of(cluster(leaf_nodes=2, oversubscription=4.0)) == tuple(rank // 16 for rank in range(WORLD))
    assert ports_of(cluster(fabric="rail", leaf_nodes=4, oversubscription=2.0))[:9] == (0, 2, 4, 6, 8, 10, 12, 14, 0)


def test_parts_of_an_uplink_follow_from_bytes_and_time() -> None:
    """Eight ranks of a node send half of their bytes each over the uplink, which carries two ports' bandwidth."""
    target = cluster(leaf_nodes=1, oversubscription=4.0)
    wire_s = 8 * BYTES / 2 / (2 * target.fabric.port_bytes_per_s)
    collective, group = Collective("all_to_all", BYTES, "bfloat16", 0), Group("far", (0, 32), 2)
    assert parts_of(collective, group, target, 2 * wire_s) == pytest.approx((1 / 16, 1 / 16))
    assert parts_of(collective, group, target, wire_s / 2) == pytest.approx((1 / 8, 1 / 8))
    assert parts_of(collective, Group("node", tuple(range(8)), 8), target, wire_s) == (0.0, 0.0)


def test_exchanges_of_different_groups_share_a_narrow_uplink() -> None:
    """Beside each other they take nearly as long as one after the other; without contention half of that."""
    target = cluster(leaf_nodes=1, oversubscription=8.0)
    together, apart = beside(target, overlap=True).timeline, beside(target, overlap=False).timeline
    free = beside(target, overlap=True, contention=False).timeline
    assert free.makespan_ns == pytest.approx(apart.makespan_ns / 2, rel=0.02)
    assert 0.85 * apart.makespan_ns < together.makespan_ns <= 1.001 * apart.makespan_ns
    assert together.ports_ns.sum() > 0


def test_alone_nothing_is_slowed() -> None:
    target = cluster(leaf_nodes=1, oversubscription=8.0)
    alone = beside(target, overlap=False)
    assert alone.timeline.slowed_ns.sum() == 0
    assert "Collectives that run at the same time share the uplinks of leaf switches." in alone.result.notes
