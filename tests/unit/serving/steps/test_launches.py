"""Host time of launches beyond a CUDA graph."""

from __future__ import annotations

import dataclasses

import pytest

from presim.hardware import catalogue
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.launches import launched, tables
from presim.serving.steps.overheads import Overheads

MODEL, GPU = find("qwen3-30b-a3b"), catalogue.gpu("h100-sxm")


def ms(plan: ServingPlan, tokens: int, *, prompts: bool, model: str = "qwen3-30b-a3b") -> float:
    made = tables(find(model), plan, Overheads(), GPU)
    return float(made["prompt_launch_ns" if prompts else "decode_launch_ns"][tokens]) / 1e6


def test_a_captured_step_of_experts_beyond_the_largest_graph_is_met() -> None:
    """43 ms compiled on a busy machine and 41 ms eager (validation/results/captured-steps.md); in a graph, nothing."""
    assert ms(ServingPlan(), 1024, prompts=True) == pytest.approx(42.9, rel=0.05)
    assert ms(ServingPlan(cuda_graphs=False), 1024, prompts=True) == pytest.approx(41, rel=0.05)
    assert ms(ServingPlan(), 256, prompts=False) == 0


def test_gpt_oss_runs_up_to_1024_tokens_in_graphs() -> None:
    """Beyond them 36 ms for 24 layers were captured."""
    plan = ServingPlan(expert_weights="mxfp4")
    assert ms(plan, 1024, prompts=True, model="gpt-oss-20b") < 4
    assert ms(plan, 1025, prompts=True, model="gpt-oss-20b") == pytest.approx(36.4, rel=0.05)


def test_adapters_are_launched_by_python_in_eager_steps() -> None:
    """A published run of Qwen2.5-72B took 97 ms more a token with an adapter."""
    plain, adapted = (
        ServingPlan(weights="int4", cuda_graphs=False),
        ServingPlan(weights="int4", cuda_graphs=False, max_loras=1),
    )
    more = ms(adapted, 1, prompts=False, model="qwen2.5-72b") - ms(plain, 1, prompts=False, model="qwen2.5-72b")
    assert more == pytest.approx(97, rel=0.02)
    assert ms(ServingPlan(max_loras=1), 1, prompts=False, model="qwen2.5-72b") == 0  # in a graph


def test_only_vllm_s_and_sglang_s_experts_are_launched_by_python() -> None:
    """TensorRT-LLM launches one kernel after the other, as gpt-oss's kernels for Blackwell are taken to be."""
    plain = launched(MODEL, dataclasses.replace(ServingPlan(), kernels="trtllm"), GPU)
    assert launched(MODEL, ServingPlan(), GPU) - plain == 25 * MODEL.layers
    gpt_oss, plan = find("gpt-oss-20b"), ServingPlan(expert_weights="mxfp4")
    by_gpu = {name: launched(gpt_oss, plan, catalogue.gpu(name)) for name in ("h100-sxm", "b200")}
    assert by_gpu["h100-sxm"] - by_gpu["b200"] == 49 * gpt_oss.layers
