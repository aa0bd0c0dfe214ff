"""Transfers of weights: bound by software, by links, or by a described network."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.rl_job import Placement
from presim.post_training.weights import WeightSync, software_seconds, weight_sync
from support import rl_jobs

NODES = 'gpu = "h100-sxm"\nnodes = 4\n'
NETWORK = '[network]\nfabric = "fat-tree"\nleaf_nodes = 2\noversubscription = {}\n'


def sync(folder: Path, network: str = "", *, is_packed: bool = True) -> WeightSync:
    file = folder / "cluster.toml"
    file.write_text(NODES + network)
    engine, placement = rl_jobs.engine(), Placement(16, 16, is_colocated=False)
    return weight_sync(
        engine.model,
        engine,
        choose_cluster(cluster=str(file)),
        placement,
        transfer="packed" if is_packed else "per-parameter",
    )


def test_a_narrow_network_slows_the_transfer(tmp_path: Path) -> None:
    wide, narrow = (sync(tmp_path, NETWORK.format(ratio)).broadcast_s for ratio in (1.0, 32.0))
    assert wide == pytest.approx(sync(tmp_path).broadcast_s, rel=0.2)
    assert narrow > 1.5 * wide


def test_nemo_rls_software_limits_a_colocated_transfer() -> None:
    """A start and a rate, by two published refits."""
    engine, cluster = rl_jobs.engine(), choose_cluster(gpu="h100-sxm", nodes=4)
    together = Placement(32, 32)
    transfer = weight_sync(engine.model, engine, cluster, together, transfer="packed")
    assert transfer.seconds == pytest.approx(10.5 + transfer.sent_bytes / 23.6e9)


def test_one_sender_has_one_nic(tmp_path: Path) -> None:
    single = sync(tmp_path, is_packed=False)
    assert single.broadcast_s >= single.sent_bytes / 50e9
    assert single.seconds == single.software_s
    assert sync(tmp_path).broadcast_s < single.broadcast_s / 2


def test_adapters_are_sent_alone() -> None:
    """So many numbers as their products have: rank times inputs and outputs of each linear layer."""
    engine, cluster = rl_jobs.engine(), choose_cluster(gpu="h100-sxm", nodes=4)
    apart = Placement(16, 16, is_colocated=False)
    sent = [weight_sync(engine.model, engine, cluster, apart, adapter_rank=rank).sent_bytes for rank in (8, 16)]
    layers, hidden, heads, kv_heads, head_dim, width = 28, 1024, 16, 8, 128, 3072  # Qwen3-0.6B
    attention = 3 * hidden + (heads + 2 * kv_heads) * head_dim + heads * head_dim + hidden
    dense = 2 * hidden + 2 * width + width + hidden
    assert sent == [2 * rank * layers * (attention + dense) for rank in (8, 16)]


def test_verls_checkpoint_engine_has_a_start_and_a_rate() -> None:
    engine, cluster = rl_jobs.engine(), choose_cluster(gpu="h100-sxm", nodes=4)
    apart = Placement(16, 16, is_colocated=False)
    sent = weight_sync(engine.model, engine, cluster, apart, transfer="checkpoint-engine")
    assert sent.seconds == pytest.approx(1.5 + sent.sent_bytes / 21.2e9)


def test_software_sends_a_power_of_the_size() -> None:
    """Published: 14.2 s for the 65.5 GB of Qwen2.5-32B between 2 and 2 nodes, which the law does not rest on."""
    assert software_seconds(65.5e9) == pytest.approx(14.2, rel=0.1)
    assert software_seconds(2e9) / software_seconds(1e9) == pytest.approx(software_seconds(8e9) / software_seconds(4e9))
