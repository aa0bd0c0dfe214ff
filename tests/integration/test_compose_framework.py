"""A plan of Megatron's, captured with few micro-batches and extended, against the whole step captured."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from presim.composition.frameworks import kept_captures
from presim.composition.graph.take import config_file
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.evaluation.options import EvaluationOptions
from presim.result import Result
from presim.verbs.compose_framework import capture_plan_and_evaluate

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("megatron.core", "megatron.bridge")]

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_captures, "cache_folder", lambda: tmp_path / "captures")


def evaluated(
    folder: Path,
    model: dict[str, Any] = LLAMA,
    *,
    extends: bool = True,
    simulates_all: bool = True,
    world_size: int = 8,
    precision: str = "bf16",
    overrides: Sequence[str] = (),
    **fields: Any,
) -> Result:
    config = folder / "config.json"
    config.write_text(json.dumps(model))
    fields = {"sequence": 4096, **fields}
    options = EvaluationOptions(gpu="h100-sxm", world_size=world_size, host_time=False)
    evaluation = capture_plan_and_evaluate(
        str(config),
        Plan(**fields),
        fields.keys(),
        options,
        precision=precision,
        overrides=overrides,
        extends=extends,
        simulates_all=simulates_all,
    )
    return evaluation.result


PLAN = {"tensor": 2, "pipeline": 2, "global_batch": 2 * 12}


def test_a_plan_is_captured_with_few_micro_batches_and_extended(tmp_path: Path) -> None:
    extended = evaluated(tmp_path, **PLAN)
    assert any("from 5 to 12 micro-batches" in note for note in extended.notes)
    assert extended.throughput.samples_per_s == pytest.approx(24 / extended.step_time_s)


@pytest.mark.long
def test_an_extended_step_is_as_if_it_were_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extended = evaluated(tmp_path, **PLAN)
    monkeypatch.setattr("presim.composition.frameworks.megatron.fewest_repeating", lambda plan: 12)
    captured = evaluated(tmp_path, **PLAN)
    assert extended.step_time_s == pytest.approx(captured.step_time_s, rel=0.01)
    assert extended.memory.peak_allocated_bytes == pytest.approx(captured.memory.peak_allocated_bytes, rel=0.01)
    assert extended.throughput == captured.throughput


@pytest.mark.long
@pytest.mark.parametrize(
    "fields", [{"tensor": 2, "pipeline": 2, "global_batch": 2 * 40}, {"tensor": 2, "global_batch": 4 * 40}], ids=str
)
def test_few_micro_batches_answer_for_all(tmp_path: Path, fields: dict[str, Any]) -> None:
    few, all_of_step = (evaluated(tmp_path, simulates_all=simulates_all, **fields) for simulates_all in (False, True))
    assert any("of 40 micro-batches: two rounds" in note for note in few.notes)
    assert few.step_time_s == pytest.approx(all_of_step.step_time_s, rel=0.001)
    assert few.memory.peak_allocated_bytes == pytest.approx(all_of_step.memory.peak_allocated_bytes, rel=0.001)
    assert few.throughput.samples_per_s == pytest.approx(all_of_step.throughput.samples_per_s, rel=0.001)
    assert few.flops.executed == pytest.approx(all_of_step.flops.executed, rel=0.001)


@pytest.mark.long
def test_four_stages_of_a_pipeline_say_what_eight_do(tmp_path: Path) -> None:
    model, plan = {**LLAMA, "num_hidden_layers": 8}, {"pipeline": 8, "global_batch": 20}
    extended, captured = (evaluated(tmp_path, model, extends=extends, **plan) for extends in (True, False))
    assert any("Extended from 4 to 8 pipeline stages" in note for note in extended.notes)
    assert extended.step_time_s == pytest.approx(captured.step_time_s, rel=0.001)
    assert extended.memory.peak_allocated_bytes == pytest.approx(captured.memory.peak_allocated_bytes, rel=0.001)
    assert extended.memory.peak_reserved_bytes == pytest.approx(captured.memory.peak_reserved_bytes, rel=0.02)
    assert extended.throughput == captured.throughput


@pytest.mark.long
@pytest.mark.parametrize(
    "fields",
    [{"global_batch": 60}, {"global_batch": 30, "context": 2, "precision": "fp8-delayed"}],
    ids=["bf16", "fp8"],
)
def test_four_stages_of_an_interleaved_pipeline_say_what_six_do(tmp_path: Path, fields: dict[str, Any]) -> None:
    model = {**LLAMA, "num_hidden_layers": 12}
    plan = {"tensor": 2, "pipeline": 6, "virtual": 2, **fields}
    composed, captured = (
        evaluated(tmp_path, model, extends=extends, world_size=24, **plan) for extends in (True, False)
    )
    assert any("Composed of 4 captured stages of 2 chunks: 6 stages" in note for note in composed.notes)
    assert composed.step_time_s == pytest.approx(captured.step_time_s, rel=0.001)
    assert composed.memory.peak_allocated_bytes == pytest.approx(captured.memory.peak_allocated_bytes, rel=0.02)
    assert composed.memory.peak_reserved_bytes == pytest.approx(captured.memory.peak_reserved_bytes, rel=0.02)
    assert composed.throughput == captured.throughput


@pytest.mark.long
@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"virtual": 2, "global_batch": 12}, "Composed of 4 captured stages of 2 chunks: 6 stages"),
        ({"global_batch": 10}, "Extended from 4 to 6 pipeline stages"),
    ],
    ids=["interleaved", "1F1B"],
)
def test_the_last_stage_has_fewer_layers(tmp_path: Path, fields: dict[str, Any], sentence: str) -> None:
    """Eleven layers in six stages, or in twelve chunks, the last of which has none."""
    model, plan = {**LLAMA, "num_hidden_layers": 11}, {"pipeline": 6, "sequence": 1024, **fields}
    composed, captured = (
        evaluated(tmp_path, model, extends=extends, world_size=6, **plan) for extends in (True, False)
    )
    assert any(sentence in note for note in composed.notes)
    assert composed.step_time_s == pytest.approx(captured.step_time_s, rel=0.001)
    assert composed.memory.peak_allocated_bytes == pytest.approx(captured.memory.peak_allocated_bytes, rel=0.01)
    assert composed.throughput == captured.throughput


@pytest.mark.long
def test_a_layout_of_the_user_s_may_predict_tokens_on_a_stage_of_its_own(tmp_path: Path) -> None:
    """A small model of DeepSeek-V3's kind: a dense layer, five with experts, and one that predicts a second token."""
    config = config_file("deepseek-v3")
    assert config is not None
    sizes = {"hidden_size": 512, "intermediate_size": 1024, "moe_intermediate_size": 256, "num_hidden_layers": 6}
    kinds = {"first_k_dense_replace": 1, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2}
    model = {**json.loads(config.read_bytes()), **sizes, **kinds, "num_attention_heads": 8, "num_key_value_heads": 8}
    plan = {"pipeline": 8, "global_batch": 18, "sequence": 1024}
    overrides = ["model.pipeline_model_parallel_layout='E(t|)*6m|L'"]
    result = evaluated(tmp_path, model, overrides=overrides, **plan)
    assert result.step_time_s
    assert any("17 to 18 micro-batches" in note for note in result.notes), "\n".join(result.notes)


def test_a_model_that_bridge_does_not_have_is_refused_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Megatron-Bridge refused the plan"):
        evaluated(tmp_path, {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "vocab_size": 50257})


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "plan"),
    [
        (  # its vocabulary is padded
            {
                "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 512, "n_layer": 2, "n_head": 8,
                "n_positions": 4096, "vocab_size": 50257, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
            },
            {"tensor": 2},
        ),
        (  # six layers in four chunks: embedding and output layer count as layers
            {
                **LLAMA, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_hidden_layers": 6,
                "intermediate_size": 512, "num_local_experts": 4, "num_experts_per_tok": 2,
            },
            {"expert": 4, "pipeline": 2, "virtual": 2, "global_batch": 8},
        ),
        (  # the text part of a model of images and text; every second layer has experts
            {
                "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
                "text_config": {
                    **LLAMA, "model_type": "llama4_text", "intermediate_size": 512, "intermediate_size_mlp": 1024,
                    "head_dim": 128, "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
                },
            },
            {"expert": 4, "global_batch": 8},
        ),
    ],
    ids=["gpt2", "mixtral", "llama4"],
)  # fmt: skip
def test_models_without_a_bridge_are_megatron_s_too(
    tmp_path: Path, model: dict[str, Any], plan: dict[str, int]
) -> None:
    result = evaluated(tmp_path, model, **plan)
    assert result.exit in ("ok", "stopped")
    assert result.step_time_s is not None
    data_parallel_ranks = 8 // (plan.get("tensor", 1) * plan.get("pipeline", 1))
    assert result.throughput.data_parallel_ranks == data_parallel_ranks


LATENT = {
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "v_head_dim": 64, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 256, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
}  # fmt: skip
MAMBA = {
    "hybrid_override_pattern": "M-M*", "mamba_num_heads": 16, "mamba_head_dim": 64, "n_groups": 8,
    "ssm_state_size": 64, "head_dim": 128, "use_bias": False, "residual_in_fp32": False,
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "needed"),
    [
        (  # a type of its own, with another model's architecture
            {**LLAMA, **LATENT, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2"},
            (),
        ),
        (
            {**LLAMA, **MAMBA, "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h"},
            ("mamba_ssm", "causal_conv1d"),
        ),
    ],
    ids=["kimi", "hybrid"],
)
def test_published_configs_are_those_that_bridge_reads(
    tmp_path: Path, model: dict[str, Any], needed: tuple[str, ...]
) -> None:
    if not all(map(importlib.util.find_spec, needed)):
        pytest.skip("what Mamba's layers need is not installed")
    result = evaluated(tmp_path, model, world_size=2, global_batch=4)
    assert result.exit in ("ok", "stopped")
    assert result.step_time_s is not None
