"""Host time of launches beyond a CUDA graph."""

from __future__ import annotations

import dataclasses

import pytest

from presim.hardware import catalogue
from presim.serving.model import find
from presim.serving.plan import Plan
from presim.serving.steps.launches import launched, tables
from presim.serving.steps.overheads import Overheads

MODEL = find("qwen3-30b-a3b")


def ms(plan: Plan, tokens: int, *, prompts: bool, model: str = "qwen3-30b-a3b") -> float:
    made = tables(find(model), plan, Overheads(), catalogue.gpu("h100-sxm"))
    return float(made["prompt_launch_ns" if prompts else "decode_launch_ns"][tokens]) / 1e6


def test_a_captured_step_of_experts_beyond_the_largest_graph_is_met() -> None:
    """42.9 ms with CUDA graphs and 41 ms eager (validation/results/captured-steps.md); within a graph, nothing."""
    assert ms(Plan(), 1024, prompts=True) == pytest.approx(42.9, rel=0.05)
    assert ms(Plan(cuda_graphs=False), 1024, prompts=True) == pytest.approx(41, rel=0.05)
    assert ms(Plan(), 256, prompts=False) == 0


def test_only_vllm_s_and_sglang_s_experts_are_launched_by_python() -> None:
    """TensorRT-LLM launches one kernel after the other, and gpt-oss's kernels have little around them."""
    plain = launched(MODEL, dataclasses.replace(Plan(), kernels="trtllm"))
    assert launched(MODEL, Plan()) - plain == 25 * MODEL.layers
    gpt_oss = find("gpt-oss-20b")
    by_name = {kind: launched(gpt_oss, Plan(expert_weights=kind)) for kind in ("bf16", "mxfp4")}
    assert by_name["bf16"] - by_name["mxfp4"] == 24 * gpt_oss.layers
