"""Serving on a described network: transfers of keys and values, and collectives between nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.cli import main
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.transfers import kv_bytes_per_s
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.times import PricedEngine, build

TREE = """gpu = "h100-sxm"
nodes = 1
gpus_per_node = 8

[network]
fabric = "fat-tree"
leaf_nodes = 1
oversubscription = {}
"""


def engine(
    folder: Path, oversubscription: float, world_size: int, plan: ServingPlan, model: str = "llama3-8b"
) -> PricedEngine:
    path = folder / f"cluster-{oversubscription}.toml"
    path.write_text(TREE.format(oversubscription))
    return build(find(model), plan, choose_cluster(cluster=path, world_size=world_size))


def test_a_transfer_has_its_ports_where_no_network_is_described() -> None:
    plain = build(find("llama3-8b"), ServingPlan(tp=2), choose_cluster(gpu="h100-sxm", world_size=2))
    assert kv_bytes_per_s(plain, 1, plain, 1) == pytest.approx(2 * plain.cluster.network_bytes_per_s)


def test_an_oversubscribed_leaf_slows_transfers_down(tmp_path: Path) -> None:
    speeds = []
    for oversubscription in (1.0, 4.0):
        eight = engine(tmp_path, oversubscription, 16, ServingPlan(tp=8))
        speeds.append(kv_bytes_per_s(eight, 1, eight, 1))
    assert speeds[0] == pytest.approx(8 * 50e9, rel=0.01)  # eight ports of 400 Gb/s
    assert speeds[1] == pytest.approx(speeds[0] / 4, rel=0.01)


def test_pairs_of_engines_share_what_they_cross(tmp_path: Path) -> None:
    four = engine(
        tmp_path, 4.0, 16, ServingPlan(tp=4)
    )  # two prefill engines on a node, two decode engines on the other
    alone, together = kv_bytes_per_s(four, 2, four, 1), kv_bytes_per_s(four, 2, four, 2)
    assert together <= alone


def test_experts_between_nodes_take_longer_over_an_oversubscribed_leaf(tmp_path: Path) -> None:
    plan = ServingPlan(dp=16, ep=True, kernels="sglang", weights="fp8-block", max_num_seqs=64)
    tokens_ns = [
        float(engine(tmp_path, oversubscription, 16, plan, "qwen3-30b-a3b").times.shared_ns[1024])
        for oversubscription in (1.0, 4.0)
    ]
    assert tokens_ns[1] > 1.05 * tokens_ns[0]


def test_a_deployment_s_fleet_has_the_bandwidth_of_its_network(tmp_path: Path) -> None:
    eight = engine(tmp_path, 1.0, 16, ServingPlan(tp=8))
    assert Deployment(eight, prefill=eight, prefill_replicas=1).fleet().port_bytes_per_s == pytest.approx(
        4e11, rel=0.01
    )


def test_prefill_on_another_gpu_has_its_own_speed_power_and_ports() -> None:
    decode = build(find("llama3-8b"), ServingPlan(), choose_cluster(gpu="l40s", world_size=1))
    prefill = build(find("llama3-8b"), ServingPlan(), choose_cluster(gpu="b200", world_size=1))
    mixed = Deployment(decode, 2, prefill=prefill, prefill_replicas=1)
    ports = [engine.cluster.network_bytes_per_s for engine in (decode, prefill)]
    assert kv_bytes_per_s(decode, 2, prefill, 1) == pytest.approx(min(ports))
    assert mixed.gpu_ids == "b200 and l40s"
    watts = [engine.cluster.gpu.power_w or 0.0 for engine in (decode, prefill)]
    assert mixed.power_w == pytest.approx((2 * watts[0] + watts[1]) / 3)


def test_serve_takes_the_defaults_of_each_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    load = ["--concurrency", "4", "--requests", "12", "--input", "3000", "--output", "8", "--max-model-len", "8192"]
    apart = ["serve", "llama3-8b", "--gpu", "l40s", "--replicas", "1", "--prefill-replicas", "1", *load]
    ttfts = []
    for words in ([], ["--prefill-gpu", "h100-sxm"]):
        assert main.run([*apart, *words, "--json", "-"]) == 0
        document = json.loads(capsys.readouterr().out)
        ttfts.append(document["figures"]["median_ttft_ms"])
    assert document["deployment"]["prefill_gpu"] == "h100-sxm"
    assert ttfts[1] < 0.7 * ttfts[0]
    assert main.run(["serve", "llama3-8b", "--gpu", "l40s", "--prefill-gpu", "b200", *load]) == 2
    assert "--prefill-gpu has no effect without --prefill-replicas" in capsys.readouterr().err
