"""The pool of cached blocks that all engines share: its size in blocks, and its bandwidth on ports and networks."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from presim.cli.serve import command
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.shared_kv import SharedKv, with_shared_kv
from presim.serving.deployments.transfers import shared_bytes_per_s
from presim.serving.engines.engine import Tiers
from presim.serving.serving_plan import Offload, ServingPlan
from presim.serving.steps import engine_memory
from presim.serving.steps.times import PricedEngine
from presim.units import GIB
from support.deployments import engine_of

BLOCK_BYTES = 16 * 131_072  # of Llama-3-8B in 16 bits
TREE = """gpu = "h100-sxm"
nodes = 2
gpus_per_node = 8

[network]
fabric = "fat-tree"
leaf_nodes = 1
oversubscription = {}
"""


@functools.cache
def engine(tp: int = 1) -> PricedEngine:
    return engine_of("llama3-8b", "h100-sxm", ServingPlan(tp=tp))


def test_every_gpu_moves_its_part_of_a_block_over_its_own_port() -> None:
    alone, pair = engine(1), engine(2)
    limits, halved = with_shared_kv(alone, 2).tiers, with_shared_kv(pair, 2).tiers
    assert limits.shared_block_ns == pytest.approx(BLOCK_BYTES / alone.cluster.network_bytes_per_s * 1e9, abs=1)
    assert halved.shared_block_ns == pytest.approx(limits.shared_block_ns / 2, abs=1)
    assert SharedKv(10).blocks(alone) == SharedKv(10).blocks(pair) == 10 * GIB // BLOCK_BYTES
    assert SharedKv(10, gbps=20).block_ns(pair) == round(BLOCK_BYTES / 20)
    assert (SharedKv(10).block_ns(pair), limits.host_blocks) == (0, 0)


def test_copies_to_the_gpu_are_those_from_host_memory() -> None:
    tiers, slow = with_shared_kv(engine(), 2).tiers, Tiers(10, host_block_ns=7, latency_ns=9)
    host = engine_memory.tiers(ServingPlan(offload=Offload(10.0)), engine().cluster, engine().memory)
    assert (tiers.host_block_ns, tiers.latency_ns) == (host.host_block_ns, host.latency_ns) > (0, 0)
    tiered = dataclasses.replace(engine(), limits=dataclasses.replace(engine().limits, tiers=slow))
    own = with_shared_kv(tiered, 2).tiers
    assert (own.host_blocks, own.host_block_ns, own.latency_ns) == (10, 7, 9)


def test_an_oversubscribed_leaf_slows_the_pool_down(tmp_path: Path) -> None:
    """Two engines of eight GPUs on two nodes read from each other's node."""
    speeds = []
    for oversubscription in (1.0, 4.0):
        path = tmp_path / "cluster.toml"
        path.write_text(TREE.format(oversubscription))
        cluster = choose_cluster(cluster=path, world_size=16)
        eight = dataclasses.replace(engine(), plan=ServingPlan(tp=8), cluster=cluster)  # prices are no part of it
        speeds.append(shared_bytes_per_s(eight, 2))
    assert speeds[0] == pytest.approx(50e9, rel=0.01)
    assert speeds[1] == pytest.approx(speeds[0] / 4, rel=0.01)


def test_the_fleet_has_the_pool() -> None:
    fleet = Deployment(engine(), 2, shared_kv=SharedKv(1, gbps=10)).fleet()
    assert (fleet.pool_blocks, fleet.pool_block_ns) == (GIB // BLOCK_BYTES, round(BLOCK_BYTES / 10))
    assert {replica.limits.tiers.shared_block_ns for replica in fleet.replicas} == {
        with_shared_kv(engine(), 2).tiers.shared_block_ns
    }
    assert Deployment(engine(), 2).fleet().pool_blocks == 0


@pytest.mark.parametrize(
    ("gib", "reason"),
    [(1e-4, "does not hold a KV block of 2,097,152 bytes"), (1e8, "exceed the limit of 20,000,000 for simulation")],
)
def test_a_size_that_no_simulation_has_is_refused(gib: float, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        SharedKv(gib).blocks(engine())


WORDS = ("llama3-8b", "--gpu", "h100-sxm", "--requests", "12", "--rate", "2", "--shared-prefix", "512", "--output", "4")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--kv-shared-bandwidth", "5"), "say its size with --kv-shared"),
        (("--kv-shared", "5", "--no-prefix-caching"), "which --no-prefix-caching switches off"),
        (("--kv-shared", "nan"), "kv-shared"),
        (("--kv-shared", "5", "--kv-shared-bandwidth", "0"), "kv-shared-bandwidth"),
    ],
)
def test_options_without_effect_are_refused(words: tuple[str, ...], reason: str) -> None:
    result = CliRunner().invoke(command, [*WORDS, *words])
    assert result.exit_code != 0
    assert reason in str(result.exception) + result.output


def test_the_report_says_what_was_found_in_the_pool(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    words = [*WORDS, "--input", "1024", "--replicas", "3", "--kv-shared", "50", "--json", str(out)]
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 0, result.output
    assert "in the shared pool, which got" in " ".join(result.output.split())
    tiers = json.loads(out.read_text())["engine"]["tiers"]
    assert tiers["shared_hit_tokens"] == 2 * 512  # the prefix, on each of the two engines that did not compute it
    assert tiers["blocks_stored"] == (512 + 12 * 1024) // 16
