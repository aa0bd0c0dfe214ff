"""Models that vLLM serves and transformers does not have are read from vLLM's class."""

from __future__ import annotations

import pytest

from presim.composition.models.decoder_layers import Attention, Dense, Experts
from presim.composition.models.describe_model import read_code

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("vllm")]

LING_MINI = {  # inclusionAI/Ling-mini-2.0, 16 billion parameters, 1.4 of them active
    "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "hidden_size": 2048,
    "num_hidden_layers": 20, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 5120,
    "head_dim": 128, "vocab_size": 157184, "max_position_embeddings": 32768, "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "rope_theta": 600000, "num_experts": 256, "num_experts_per_tok": 8, "num_shared_experts": 1,
    "moe_intermediate_size": 512, "first_k_dense_replace": 1, "n_group": 8, "topk_group": 4, "norm_topk_prob": True,
    "score_function": "sigmoid", "moe_router_enable_expert_bias": True, "routed_scaling_factor": 2.5,
    "use_qk_norm": True, "use_qkv_bias": False, "use_bias": False, "tie_word_embeddings": False,
    "embedding_dropout": 0.0, "partial_rotary_factor": 0.5, "rotary_dim": 64, "norm_head": False, "use_rmsnorm": True,
}  # fmt: skip


def test_a_model_without_a_class_in_transformers_has_vllm_s() -> None:
    (answer,) = read_code([LING_MINI], "models")
    assert answer.refusal == ""
    assert answer.model is not None
    assert answer.model.parameters / 1e9 == pytest.approx(16.26, rel=0.001)
    assert answer.model.active_parameters / 1e9 == pytest.approx(1.43, rel=0.01)
    first, last = answer.model.kinds
    assert first.mixers == last.mixers == (Attention(16, 4, 128, 128),)
    assert first.feed_forwards == (Dense(5120),)
    assert last.feed_forwards == (Experts(256, 8, 512, 2048), Dense(512, shared=True))


def test_a_model_that_vllm_serves_for_another_task_is_refused() -> None:
    reward = {**LING_MINI, "architectures": ["Qwen2ForRewardModel"], "model_type": "qwen2"}
    (answer,) = read_code([reward], "models")
    assert answer.refusal.startswith("is no generator of text: vLLM serves Qwen2ForRewardModel for other tasks")
