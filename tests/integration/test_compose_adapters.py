"""LoRA under DeepSpeed: the adapters alone are trained, reduced and updated, at any stage of ZeRO."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.composition.frameworks import kept_captures
from presim.composition.plan import Plan
from presim.evaluation.options import EvaluationOptions
from presim.result import Result
from presim.verbs.compose_framework import capture_plan_and_evaluate

pytestmark = [pytest.mark.torch_cuda, pytest.mark.slow, pytest.mark.needs("deepspeed", "peft", "transformers")]

LAYERS, HIDDEN, WIDE, RANK = 2, 1024, 4096, 16
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": WIDE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
# A and B beside each of q, k, v, o (square), gate, up and down.
ADAPTER_VALUES = LAYERS * RANK * (4 * 2 * HIDDEN + 3 * (HIDDEN + WIDE))
FROZEN_VALUES = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * WIDE) + 2 * 32000 * HIDDEN


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_captures, "cache_folder", lambda: tmp_path / "captures")


def evaluated(folder: Path, *arguments: str, **fields: str) -> Result:
    config = folder / "config.json"
    config.write_text(json.dumps(MODEL))
    plan = Plan(sequence=1024, global_batch=16, **fields)  # type: ignore[arg-type]  # of mixed types
    names = ("sequence", "global_batch", *fields)
    options = EvaluationOptions(gpu="h100-sxm", world_size=8, host_time=False)
    lora = ("--lora_r", str(RANK), "--lora_target_modules", "all-linear")
    return capture_plan_and_evaluate(
        str(config), plan, names, options, framework="deepspeed", overrides=(*arguments, *lora)
    ).result


def reduced_bytes(result: Result) -> int:
    kinds = ("all_reduce", "reduce", "reduce_scatter")
    return sum(row.bytes for row in result.collectives if row.kind in kinds)


@pytest.mark.long
def test_gradients_of_adapters_alone_are_reduced(tmp_path: Path) -> None:
    result = evaluated(tmp_path, "zero_optimization.stage=2", data_style="zero1")
    steps = 16 // 8  # micro-batches, whose gradients ZeRO-2 reduces one by one
    assert reduced_bytes(result) == pytest.approx(steps * 2 * ADAPTER_VALUES, rel=0.02)
    assert result.memory.peak_allocated_bytes > 2 * FROZEN_VALUES


@pytest.mark.long
def test_frozen_weights_are_gathered_and_only_adapters_reduced_by_zero_3(tmp_path: Path) -> None:
    result = evaluated(tmp_path, data_style="fsdp2")
    gathered_bytes = sum(row.bytes for row in result.collectives if row.kind == "all_gather")
    assert reduced_bytes(result) == pytest.approx(2 * 2 * ADAPTER_VALUES, rel=0.05)
    assert gathered_bytes > 2 * 2 * FROZEN_VALUES  # in each of two micro-batches
