"""Shapes of a model: from the cells of a case, or by its published name."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.dense_models import (
    FALCONS,
    GEMMAS,
    GPT3S,
    LLAMAS,
    MEGATRONS,
    MIXTRALS,
    NEMOTRONS,
    QWEN3S,
    QWENS,
    STARCODERS,
)
from presim_study.models import published_shapes

CELLS = {"id": "x", "n_layers": "12", "hidden": "512", "n_heads": "8", "seq_len": "1024"}


def test_cells_of_a_gpt_follow_megatrons_own_options() -> None:
    plain = published_shapes(Case({**CELLS, "model": "gpt/gpt3"}))
    assert (plain.style, plain.tied, plain.positions, plain.ffn, plain.vocab) == ("gpt", True, "learned", 2048, 50257)
    said = "swiglu=True;untie-embeddings-and-output-weights=True"
    flagged = published_shapes(Case({**CELLS, "model": "gpt/gpt3_rope", "other": said}))
    assert (flagged.tied, flagged.positions, flagged.ffn) == (False, "rope", 1344)


def test_experts_come_from_cells_and_options() -> None:
    said = "moe-grouped-gemm=True;moe-token-dispatcher-type=alltoall;moe-ffn-hidden-size=1024"
    shapes = published_shapes(Case({**CELLS, "model": "moe/gpt3", "n_experts": "8", "topk": "2", "other": said}))
    assert shapes.fields["num_moe_experts"] == 8
    assert shapes.fields["moe_router_topk"] == 2
    assert shapes.fields["moe_token_dispatcher_type"] == "alltoall"
    assert shapes.fields["moe_ffn_hidden_size"] == 1024


def test_simumax_says_experts_in_words() -> None:
    said = "alltoall dispatcher, capacity factor 1 padded, MLA q_lora1536 kv_lora512, moe_ffn 1536/2048, 1 dense layer"
    row = {**CELLS, "n_layers": "4", "model": "deepseekv2", "n_experts": "160", "topk": "6", "other": said}
    fields = published_shapes(Case(row)).fields
    assert fields["moe_ffn_hidden_size"] == 1536
    assert fields["moe_shared_expert_intermediate_size"] == 2048
    assert fields["moe_layer_freq"] == [0, 1, 1, 1]
    assert fields["moe_token_dispatcher_type"] == "alltoall"
    assert fields["moe_pad_expert_input_to_capacity"]


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("DeepSeekV3 (dropless)", 671),
        ("DeepSeek-V2", 236),
        ("DeepSeek-V2-Lite", 15.7),
        ("Moonlight-16B", 16),
        ("Qwen3_30B_a3B", 30.5),
        ("Qwen3 MoE 30B", 30.5),
        ("Kimi_K2", 1026),
        ("Llama 4 Scout", 107.8),
        ("GLM-4.5", 353),
        ("GLM 4.5 Air", 106),
        ("OLMoE 1B-7B", 6.9),
        ("Qwen2-57B-A14B", 57.4),
        ("Qwen1.5-MoE-A2.7B", 14.3),
        ("dbrx", 132),
        ("Nemotron-8B", 8.5),
        ("Nemotron-22B", 21.3),
        ("Nemotron-340B", 341),
        ("Falcon 40B", 41.8),
        ("StarCoder2 15B", 15.96),
        ("Gemma 7B", 8.54),
        ("DeepSeek LLM 67B", 67.4),
        ("Ministral 8B", 8.02),
        ("Phi-4", 14.66),
        ("Falcon3 10B", 10.3),
        ("OLMo 2 13B", 13.7),
        ("Qwen2 72B", 72.7),
        ("megatron-22B", 22.1),
        ("megatron-1T", 1008),
    ],
)
def test_a_published_name_has_the_published_number_of_parameters(name: str, billions: float) -> None:
    shapes = published_shapes(Case({"id": "x", "model": name}))
    assert _parameters(shapes) / 1e9 == pytest.approx(billions, rel=0.01)


def test_an_unknown_name_without_shapes_is_named() -> None:
    with pytest.raises(CannotBuildError) as raised:
        published_shapes(Case({"id": "x", "model": "Mystery 9000"}))
    assert str(raised.value) == "neither n_layers is given nor are the shapes of 'Mystery 9000' known here"


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("DeepSeek V3.2", "attention to chosen tokens"),
        ("DeepSeekV4 Flash", "attention to compressed tokens"),
        ("Qwen3_Next_80B_a3B", "gated delta nets"),
        ("Qwen3-VL 235B-A22B", "images"),
        ("Gemma 2 27B", "capped scores of attention"),
    ],
)
def test_what_the_recipes_lack_of_a_model_is_named_and_no_like_model_taken(name: str, lacking: str) -> None:
    with pytest.raises(CannotBuildError) as raised:
        published_shapes(Case({"id": "x", "model": name}))
    assert str(raised.value) == f"{name!r} has {lacking}, which the recipes have not"


def test_cells_that_are_the_named_model_s_bring_what_no_column_is_for() -> None:
    cells = {"n_layers": "48", "hidden": "2048", "n_heads": "32", "n_kv_heads": "4"}
    named = {"id": "x", "model": "Qwen3_30B_a3B"}
    assert published_shapes(Case({**named, **cells})) == published_shapes(Case(named))
    cut = published_shapes(Case({**named, **cells, "n_layers": "12"}))
    assert (cut.layers, dict(cut.fields)) == (12, {})


@pytest.mark.parametrize(("name", "hidden"), [("GPT-3 1.3B", 2048), ("GPT3_1.3B", 2048), ("GPT-3 13B", 5120)])
def test_a_point_in_a_size_is_not_lost(name: str, hidden: int) -> None:
    assert published_shapes(Case({"id": "x", "model": name})).hidden == hidden


def _parameters(shapes) -> int:  # type: ignore[no-untyped-def]
    """Matrices only: attention, experts, router, shared expert, dense layers, embedding and output."""
    f, h = shapes.fields, shapes.hidden
    if f.get("multi_latent_attention"):
        head = f["qk_head_dim"] + f["qk_pos_emb_head_dim"]
        rank, queries = f["q_lora_rank"], shapes.heads * head
        attention = rank * (h + queries) if rank else h * queries
        attention += h * (f["kv_lora_rank"] + f["qk_pos_emb_head_dim"])
        attention += f["kv_lora_rank"] * shapes.heads * (f["qk_head_dim"] + f["v_head_dim"])
        attention += shapes.heads * f["v_head_dim"] * h
    else:
        attention = h * f.get("kv_channels", h // shapes.heads) * (2 * shapes.heads + 2 * shapes.kv_heads)
    experts = f.get("num_moe_experts", 0)
    sparse = sum(f.get("moe_layer_freq", [1 if experts else 0] * shapes.layers))
    expert = 3 * h * f.get("moe_ffn_hidden_size", 0)
    moe = experts * (expert + h) + 3 * h * f.get("moe_shared_expert_intermediate_size", 0)
    dense = (2 if shapes.style == "gpt" else 3) * h * shapes.ffn
    words = (1 if shapes.tied else 2) * shapes.vocab * h
    return int(shapes.layers * attention + sparse * moe + (shapes.layers - sparse) * dense + words)


@pytest.mark.parametrize(
    "name", ["Llama-3.1-70B", "LLAMA3.1_70B", "meta-llama/Llama-3.1-70B-Instruct", "llama3.1 70b [SFT]"]
)
def test_spellings_of_a_name_are_one_model(name: str) -> None:
    shapes = published_shapes(Case({"id": "x", "model": name}))
    assert (shapes.layers, shapes.hidden, shapes.ffn, shapes.heads, shapes.kv_heads) == (80, 8192, 28672, 64, 8)


_NAMES = {**LLAMAS, **QWENS, **QWEN3S, **MIXTRALS, **NEMOTRONS, **GPT3S, **MEGATRONS, **FALCONS, **STARCODERS, **GEMMAS}


@pytest.mark.parametrize("name", sorted(_NAMES))
def test_each_published_decoder_is_found_by_its_own_name_and_its_heads_divide_its_width(name: str) -> None:
    shapes = published_shapes(Case({"id": "x", "model": name}))
    assert (shapes.layers, shapes.hidden, shapes.ffn, shapes.heads, shapes.kv_heads, shapes.vocab) == _NAMES[name]
    assert shapes.heads % shapes.kv_heads == 0
    assert shapes.fields.get("kv_channels") or shapes.hidden % shapes.heads == 0
