"""Plans of frameworks, composed from few layers and micro-batches, against captures of all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from presim.composition.frameworks import kept_captures, launched
from presim.composition.plan import Plan
from presim.evaluation.options import EvaluationOptions
from presim.result import Result
from presim.verbs.compose_framework import capture_plan_and_evaluate

pytestmark = [pytest.mark.torch_cuda]
LAYERS, RANKS = 10, 8
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 512,
    "n_layer": LAYERS,
    "n_head": 8,
    "n_positions": 2048,
    "vocab_size": 32000,
}
PLANS: list[tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]]] = [
    ("hf", LLAMA, {"micro_batch": 2, "recompute": "full"}, ()),
    ("hf", LLAMA, {"data_style": "hsdp", "shard": 4}, ()),
    ("hf", GPT2, {"attention": "flash"}, ("--sync_each_batch",)),
    ("deepspeed", LLAMA, {}, ()),
    ("deepspeed", LLAMA, {"data_style": "zero1"}, ("zero_optimization.stage=2",)),
    ("deepspeed", GPT2, {"data_style": "zero1"}, ()),
    ("torchtitan", LLAMA, {"recompute": "full"}, ()),
    ("torchtitan", LLAMA, {"tensor": 2, "sequence_parallel": True}, ()),
]
NEEDS = {"hf": "accelerate"}


def _case(number: int) -> Any:
    framework = PLANS[number][0]
    marks = [pytest.mark.needs(NEEDS.get(framework, framework)), *([pytest.mark.long] if number else [])]
    return pytest.param(*PLANS[number], id=f"{framework}-{number}", marks=marks)


@pytest.mark.parametrize(("framework", "model", "fields", "arguments"), [_case(number) for number in range(len(PLANS))])
def test_a_composed_plan_is_as_if_it_were_captured(
    framework: str,
    model: dict[str, Any],
    fields: dict[str, Any],
    arguments: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_captures, "cache_folder", lambda: tmp_path / "captures")
    monkeypatch.setattr(launched, "_FEWEST_TO_EXTEND", LAYERS)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(model))
    plan = Plan(sequence=2048, **fields)
    samples = 7 * plan.micro_batch * plan.data(RANKS)
    plan = Plan(sequence=2048, global_batch=samples, **fields)
    options = EvaluationOptions(gpu="h100-sxm", world_size=RANKS, host_time=False)

    def evaluated(extends: bool) -> Result:
        return capture_plan_and_evaluate(
            str(config), plan, fields, options, framework=framework, overrides=arguments, extends=extends
        ).result

    composed, captured = evaluated(True), evaluated(False)
    is_extended = any(f"to {LAYERS} layers: those added" in note for note in composed.notes)
    assert is_extended or framework == "deepspeed", composed.notes
    assert composed.step_time_s == pytest.approx(captured.step_time_s, rel=0.01)
    assert composed.memory.peak_allocated_bytes == pytest.approx(captured.memory.peak_allocated_bytes, rel=0.01)
    assert composed.memory.peak_reserved_bytes == pytest.approx(captured.memory.peak_reserved_bytes, rel=0.08)
    lasting = {part.name: part.bytes for part in composed.memory.by_category}
    assert framework != "hf" or lasting.get("other", 0) < 1 << 26, "parameters as they were before FSDP2"
    assert composed.throughput.samples_per_s == pytest.approx(captured.throughput.samples_per_s, rel=0.01)
