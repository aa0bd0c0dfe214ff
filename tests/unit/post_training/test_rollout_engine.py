"""Engines of a rollout: the release of SGLang decides how long their steps take."""

from __future__ import annotations

import pytest

from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.rl_job import Placement, SampleBatch
from presim.post_training.rl_request import RlRequest
from presim.post_training.rollout_engine import rollout_engine
from presim.post_training.sglang_release import STEP_SCALES, SglangRelease
from presim.serving.model_lookup import find
from presim.serving.workloads.generate import Lengths

BATCH = SampleBatch(8, 2, Lengths(64), Lengths(200))


@pytest.mark.parametrize(
    ("kernels", "release", "scale"),
    [("sglang", "0.4.6", STEP_SCALES["0.4.6"]), ("sglang", "0.5", 1.0), ("vllm", "0.4.6", 1.0)],
)
def test_steps_of_an_earlier_release_take_longer(kernels: str, release: SglangRelease, scale: float) -> None:
    """Their device time does; the host's is the same."""
    placement = Placement(2, 2, is_colocated=True)
    cluster = choose_cluster(gpu="h100-sxm", world_size=placement.gpus)
    plain = RlRequest(model="qwen3-0.6b", engine={"tp": 2, "kernels": kernels})
    request = RlRequest(model="qwen3-0.6b", engine={"tp": 2, "kernels": kernels}, sglang_release=release)
    engine, _ = rollout_engine(request, find("qwen3-0.6b"), cluster, placement, BATCH)
    current, _ = rollout_engine(plain, find("qwen3-0.6b"), cluster, placement, BATCH)
    assert float(engine.times.token_ns[-1]) == pytest.approx(scale * float(current.times.token_ns[-1]))
    assert engine.times.host_ns == current.times.host_ns
