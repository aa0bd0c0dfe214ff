"""Engines of a rollout: what shares their GPUs slows them."""

from __future__ import annotations

import pytest

from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.rl_job import Placement, SampleBatch
from presim.post_training.rl_request import RlRequest
from presim.post_training.rollout_engine import rollout_engine
from presim.serving.model_lookup import find
from presim.serving.workloads.generate import Lengths

BATCH = SampleBatch(8, 2, Lengths(64), Lengths(200))


@pytest.mark.parametrize(("degree", "is_colocated", "scale"), [(1, True, 1.0), (2, True, 2.0), (2, False, 1.0)])
def test_a_waiting_kernel_halves_the_speed_of_an_engine_of_several_gpus(
    degree: int, is_colocated: bool, scale: float
) -> None:
    """Of a colocated one; an engine of one GPU has no rank that waits."""
    placement = Placement(2, 2, is_colocated)
    request = RlRequest(
        model="qwen3-0.6b", engine={"tp": degree}, busy_wait=True, placement="colocated" if is_colocated else "separate"
    )
    cluster = choose_cluster(gpu="h100-sxm", world_size=placement.gpus)
    engine, _ = rollout_engine(request, find("qwen3-0.6b"), cluster, placement, BATCH)
    plain, _ = rollout_engine(
        RlRequest(model="qwen3-0.6b", engine={"tp": degree}), find("qwen3-0.6b"), cluster, placement, BATCH
    )
    assert float(engine.times.token_ns[-1]) == pytest.approx(scale * float(plain.times.token_ns[-1]))
    assert engine.times.host_ns == plain.times.host_ns
