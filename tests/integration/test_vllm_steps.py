"""Steps of vLLM's own model runner on the emulated GPU: each batch runs as asked, and its times follow its size."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from presim.hardware.cluster_choice import choose_cluster
from presim.serving.model_lookup import config_of, from_config
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.captured_step_times import CapturedSteps, with_captured
from presim.serving.steps.times import PricedEngine, build
from presim.verbs.capture_steps import capture_request, capture_steps, stage_cluster
from presim.verbs.step_times import read_captured

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("vllm")]
PLAN = ServingPlan(max_num_seqs=8, max_num_batched_tokens=512, max_model_len=4096, cuda_graphs=False)


def captured(
    folder: Path, name: str, plan: ServingPlan, gpu: str = "h100-sxm", **changes: Any
) -> tuple[PricedEngine, CapturedSteps]:
    """A known model with other keys in its config, captured."""
    config = {**config_of(name)[0], **changes}
    engine = build(from_config(config, "few layers"), plan, choose_cluster(gpu=gpu, world_size=plan.gpus))
    (folder / "asked.json").write_text(json.dumps(capture_request(engine, config)))
    cluster = stage_cluster(engine)
    capture_steps(folder, cluster, lambda text: None)
    return engine, read_captured(folder, cluster)


def test_batches_run_as_asked_and_are_timed(tmp_path: Path) -> None:
    """One of two stages, two layers of Llama-3-8B each; the steps are the asked ones, and each reads the weights."""
    engine, found = captured(tmp_path, "llama3-8b", dataclasses.replace(PLAN, pp=2), num_hidden_layers=4)
    asked = json.loads((tmp_path / "asked.json").read_text())
    assert asked["config"]["num_hidden_layers"] == 2
    assert [(len(one.decodes), sum(queries for queries, _ in one.prefills)) for one in found.samples] == [
        (len(one["decodes"]), sum(one["prefills"])) for one in asked["batches"]
    ]
    least_ns = engine.memory.weights / 2 / engine.cluster.gpu.memory_bytes_per_s * 1e9  # without the embedding
    decodes = [one for one in found.samples if not one.prefills and not one.held_out]
    assert all(least_ns < one.device_ns < 20 * least_ns for one in decodes)
    assert all(one.prepare_ns > 1e5 and one.head_ns > 1e5 for one in decodes)
    assert max(one.finish_ns for one in decodes) > 1e3  # some 50 us, less the time of the mark before, which varies
    prompt = next(one for one in found.samples if sum(queries for queries, _ in one.prefills) == 512)
    assert prompt.attention_ns > 0
    steps = with_captured(engine, found).steps
    assert steps is not None
    assert float(steps["held_out_median_error"]) < 0.3
    assert str(steps["source"]).endswith("one of 2 stages, messages between them composed")


@pytest.mark.parametrize(
    ("name", "plan", "changes"),
    [
        ("qwen3-30b-a3b", PLAN, {}),
        ("qwen3-30b-a3b", dataclasses.replace(PLAN, weights="fp8-block"), {}),
        ("qwen3-30b-a3b", dataclasses.replace(PLAN, weights="int4"), {}),
        ("gpt-oss-120b", dataclasses.replace(PLAN, expert_weights="mxfp4"), {}),
        ("qwen3-30b-a3b", dataclasses.replace(PLAN, tp=2, ep=True), {}),
        ("deepseek-v3", PLAN, {"first_k_dense_replace": 1}),
    ],
    ids=["experts", "in FP8", "in INT4", "in MXFP4", "whole experts on two ranks", "latent attention"],
)
def test_each_sequence_reads_the_weights_of_its_experts(
    tmp_path: Path, name: str, plan: ServingPlan, changes: dict[str, Any]
) -> None:
    """Two layers: eight sequences read those of 52 of 128 experts, or 57 of 256, where one reads those of 8 (or 4)."""
    engine, found = captured(tmp_path, name, plan, num_hidden_layers=2, **changes)
    experts = engine.model.experts
    assert experts is not None
    used = experts.count * (1 - (1 - experts.chosen / experts.count) ** 8)
    sparse = 2 - experts.dense_layers
    size = {"bf16": 2, "fp8-block": 1}.get(plan.of_experts, 0.5)
    read = sparse * (used - experts.chosen) * 3 * engine.model.hidden * experts.width * size / plan.tp
    one, eight = (next(each for each in found.samples if len(each.decodes) == count) for count in (1, 8))
    least_ns = read / engine.cluster.gpu.memory_bytes_per_s * 1e9
    assert least_ns < eight.device_ns - one.device_ns < 1.6 * least_ns
    prompt = next(each for each in found.samples if sum(queries for queries, _ in each.prefills) == 512)
    assert prompt.attention_ns > 0
    assert with_captured(engine, found).steps is not None


@pytest.mark.parametrize(("weights", "gpu"), [("int4", "h100-sxm"), ("fp4", "h100-sxm"), ("fp4", "b200")])
def test_weights_of_4_bits_are_read_packed(tmp_path: Path, weights: Any, gpu: str) -> None:
    """Four layers of Llama-3-8B: by Machete, by Marlin, and by CUTLASS's FP4 products."""
    plan = dataclasses.replace(PLAN, weights=weights)
    _, found = captured(tmp_path, "llama3-8b", plan, gpu, num_hidden_layers=4)
    one = next(each for each in found.samples if len(each.decodes) == 1)
    read = 4 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336) * 0.5  # bytes
    least_ns = read / choose_cluster(gpu=gpu).gpu.memory_bytes_per_s * 1e9
    assert least_ns < one.device_ns - one.head_ns - one.attention_ns < 6 * least_ns


def test_a_cache_in_int8_has_room_for_factors(tmp_path: Path) -> None:
    """Attention is Triton's there, and is told from the rest of a step."""
    engine, found = captured(tmp_path, "llama3-8b", dataclasses.replace(PLAN, cache="int8"), num_hidden_layers=2)
    assert found.blocks is not None
    assert abs(found.blocks / engine.memory.blocks - 1) < 0.02
    assert all(0 < one.attention_ns < 0.1 * one.device_ns for one in found.samples if not one.prefills)


def test_ranks_that_share_experts_are_captured_without_them(tmp_path: Path) -> None:
    """Of Qwen3-30B-A3B on four data-parallel ranks one is captured with 32 of 128 experts; the exchange is composed."""
    plan = dataclasses.replace(PLAN, dp=4, ep=True)
    engine, found = captured(tmp_path, "qwen3-30b-a3b", plan, num_hidden_layers=2)
    assert json.loads((tmp_path / "asked.json").read_text())["config"]["num_experts"] == 32
    assert all(0 < one.experts_ns < one.device_ns - one.head_ns for one in found.samples)
    made = with_captured(engine, found)
    assert (made.times.shared_ns == engine.times.shared_ns).all()
    assert made.times.shared_ns.any()
    assert made.steps is not None
    assert float(made.steps["held_out_median_error"]) < 0.3
