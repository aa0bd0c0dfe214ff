"""Models as their own code has them: published sizes, kinds of layers, and configs that are refused."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from presim.composition.models.describe_model import SHIPPED, describe, encode_shipped, read_code, structure_of
from presim.composition.models.description import Model
from presim.composition.models.description_replies import DescriptionReply
from presim.errors import InputError
from presim.serving.model_lookup import all_names, config_of, find, names
from presim.verbs.list_models import list_models
from support.adapted_configs import ADAPTED
from support.model_configs import PUBLISHED as OF_TRANSFORMERS

PUBLISHED = {**OF_TRANSFORMERS, **ADAPTED}

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128,
}  # fmt: skip
MIXTRAL = {
    **LLAMA, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 8,
    "num_experts_per_tok": 2,
}  # fmt: skip
EXAONE = {
    **LLAMA, "architectures": ["ExaoneMoeForCausalLM"], "model_type": "exaone_moe", "num_experts": 8,
    "num_experts_per_tok": 2, "num_shared_experts": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
    "head_dim": 8, "sliding_window": 16, "sliding_window_pattern": "LLLG", "n_group": 1, "topk_group": 1,
    "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
}  # fmt: skip


@functools.cache
def published() -> dict[str, DescriptionReply]:
    return dict(zip(PUBLISHED, read_code([config for config, _, _ in PUBLISHED.values()], "models")))


def kib_of_a_token(model: Model) -> float:
    return sum(count * 2 * mixer.token_elements for layer, count in model.counts() for mixer in layer.cached) / 1024


@pytest.mark.torch_cuda
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_the_parameters_of_its_card(name: str) -> None:
    """And its layers keep what they should of a token."""
    answer = published()[name]
    _, billions, kib = PUBLISHED[name]
    assert answer.refusal == ""
    assert answer.model is not None
    assert answer.model.parameters / 1e9 == pytest.approx(billions, rel=0.006)
    assert kib_of_a_token(answer.model) == kib


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**LLAMA, "architectures": ["InternVLChatModel"], "model_type": "internvl_chat"}, "has no part for its decoder"),
    ({"architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl", "text_config": LLAMA},
     "has no vision_config"),
    ({**LLAMA, "architectures": ["MiniCPMForCausalLM"], "model_type": "minicpm", "num_experts": 8}, "has 8 experts"),
    ({**MIXTRAL, "architectures": ["Grok1ForCausalLM"], "model_type": "grok", "residual_moe": True}, "residual_moe"),
    ({**LLAMA, "architectures": ["ChatGLMModel"], "model_type": "chatglm", "vision_config": {"a": 1}}, "reads images"),
    ({**LLAMA, "architectures": ["FooForCausalLM"]}, "has the architecture FooForCausalLM, which transformers"),
    ({**LLAMA, "architectures": ["FooForCausalLM"], "auto_map": {"AutoModel": "foo.Foo"}}, "is never run"),
    ({"hidden_size": 64, "num_hidden_layers": 2}, "names neither an architecture nor a model type"),
    ({**LLAMA, "model_type": "mixtral"}, "are of different models"),
    ({**LLAMA, "architectures": ["BertModel"], "model_type": "bert"}, "is no generator of text"),
    ({**LLAMA, "architectures": ["BertLMHeadModel"], "model_type": "bert"}, "is an encoder"),
    ({**LLAMA, "architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}, "is an encoder with a decoder"),
    ({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}, "is no generator of text"),
    ({**LLAMA, "num_key_value_heads": 3}, "KV heads|num_key_value_heads"),
    ({**LLAMA, "num_attention_heads": 7}, "heads"),
    ({**LLAMA, "num_hidden_layers": 0}, "has num_hidden_layers = 0; it must be a whole number from 1"),
    ({**LLAMA, "hidden_size": 1 << 40}, "has hidden_size = 1099511627776"),
    ({**LLAMA, "vocab_size": 3.5}, "has vocab_size = 3.5"),
    ({**LLAMA, "architectures": "LlamaForCausalLM"}, "it must be a list of names"),
    ({key: value for key, value in LLAMA.items() if key != "hidden_size"}, "has no hidden_size"),
    ({key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}, "has no num_hidden_layers"),
    ({**MIXTRAL, "num_experts_per_tok": 16}, "chooses 16 of 8 experts; it must be from 1 to 8"),
    ({**LLAMA, "num_hidden_layers": 10**6}, "it must be a whole number from 1 to 2,000"),
    ({**LLAMA, "hidden_size": "64"}, "expected int, got str"),
    ({**LLAMA, "intermediate_size": 0}, "has intermediate_size = 0"),
    ({**LLAMA, "layer_types": ["full_attention"] * 3}, "must be equal to the number of `layer_types`"),
    ({**LLAMA, "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4"}, "does not read it"),
    ({**LLAMA, "layers_block_type": ["mamba", "attention"] * 2}, "has layers_block_type, which says something of each"),
    ({"architectures": ["JetMoeForCausalLM"], "model_type": "jetmoe", "hidden_size": 64, "num_hidden_layers": 2,
      "vocab_size": 128}, "has layers JetMoeDecoderLayer, in which presim finds no attention and no states"),
    ({"architectures": ["RecurrentGemmaForCausalLM"], "model_type": "recurrent_gemma", "hidden_size": 64,
      "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 128, "lru_width": 64},
     r"has the parameters \['.*_gate_weight'"),
    ({"architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama", "text_config": {
        **{key: value for key, value in LLAMA.items() if key != "architectures"}, "model_type": "mllama_text_model",
        "pad_token_id": 0, "cross_attention_layers": [1]}}, "attends to the outputs of an encoder"),
    ({**LLAMA, "hybrid_override_pattern": "M*M*"}, "has hybrid_override_pattern, which says something of each layer"),
    ({**EXAONE, "is_moe_layer": [True, False, False, True]}, "has is_moe_layer, which says something of each layer"),
]  # fmt: skip


@functools.cache
def refused() -> list[DescriptionReply]:
    return read_code([config for config, _ in REFUSED], "models")


@pytest.mark.torch_cuda
@pytest.mark.parametrize("case", range(len(REFUSED)), ids=[reason for _, reason in REFUSED])
def test_a_config_that_no_code_serves_is_refused(case: int) -> None:
    import re

    assert re.search(REFUSED[case][1], refused()[case].refusal), refused()[case].refusal


@pytest.mark.torch_cuda
def test_flags_that_repeat_which_layers_have_experts_are_taken() -> None:
    (answer,) = read_code([{**EXAONE, "is_moe_layer": [False, True, True, True]}], "a test")
    assert answer.model is not None, answer.refusal
    assert [answer.model.kinds[kind].experts is not None for kind in answer.model.order] == [False, True, True, True]
    assert answer.model.notes == ()


@pytest.mark.torch_cuda
def test_a_key_that_no_layer_follows_is_named() -> None:
    (answer,) = read_code([{**LLAMA, "moe_num_experts": 64}], "models")
    assert answer.model is not None
    assert answer.model.notes == (
        "The config's moe_num_experts = 64 is not read by LlamaForCausalLM: no layer follows it.",
    )


@pytest.mark.torch_cuda
def test_the_second_description_of_a_config_is_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = describe(LLAMA, "small")
    monkeypatch.setattr("presim.composition.models.describe_model.read_code", None)
    assert describe(LLAMA, "small") == first
    assert describe({**LLAMA, "quantization_config": {"quant_method": "fp8"}}, "small") == first


@pytest.mark.torch_cuda
def test_what_is_shipped_is_what_the_code_says() -> None:
    """`python validation/describe_models.py` writes it."""
    configs = [config_of(name)[0] for name in all_names()]
    answers = read_code([structure_of(config) for config in configs], "models")
    assert encode_shipped(dict(zip(all_names(), zip(configs, answers)))) == SHIPPED.read_bytes()


def test_named_models_need_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("presim.composition.models.describe_model.read_code", None)
    assert [find(name).layers > 0 for name in names()] == [True] * len(names())
    assert {entry.name for entry in list_models().models} == set(all_names())


def test_a_folder_without_config_and_an_unknown_id_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a folder without config\.json"):
        find(str(tmp_path))
    with pytest.raises(InputError, match="hf download"):
        find("nobody/Nothing-1B")


def test_an_id_is_found_in_hugging_face_s_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot that `refs/main` names."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--someone--Copy-8B-AWQ"
    for snapshot in ("aaa", "bbb"):
        (folder / "snapshots" / snapshot).mkdir(parents=True)
        config = {**config_of("llama3-8b")[0], "quantization_config": {"quant_method": "awq", "bits": 4}}
        config |= {"vocab_size": 1} if snapshot == "bbb" else {}
        (folder / "snapshots" / snapshot / "config.json").write_text(json.dumps(config))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("aaa")
    model = find("someone/Copy-8B-AWQ")
    assert (model.name, model.checkpoint.weights, model.vocabulary) == ("someone/Copy-8B-AWQ", "int4", 128256)


def test_modelopt_s_file_beside_a_config_says_the_types(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("llama3-8b")[0]))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    assert find(str(tmp_path)).checkpoint.weights == "fp8"


def test_a_name_that_promises_other_types_than_the_files_say_is_named(tmp_path: Path) -> None:
    (tmp_path / "Llama-NVFP4").mkdir()
    (tmp_path / "Llama-NVFP4" / "config.json").write_text(json.dumps(config_of("llama3-8b")[0]))
    assert "The name says NVFP4" in find(str(tmp_path / "Llama-NVFP4")).notes[0]


@pytest.mark.parametrize("name", ["mistral-7b", "mistral-small-24b"])
def test_a_named_model_has_no_window_that_its_config_switches_off(name: str) -> None:
    """Mistral's class has a window of 4,096 where a config has no key; the published file has a null."""
    assert find(name).window == 0


def test_queries_of_a_named_model_are_not_compressed_where_its_config_says_so() -> None:
    latent = find("deepseek-v2-lite").latent
    assert latent is not None
    assert latent.query_rank == 0


@pytest.mark.torch_cuda
def test_experts_for_images_are_weights_without_work_for_text() -> None:
    model = published()["baidu/ERNIE-4.5-VL-28B-A3B-PT"].model
    assert model is not None
    assert [layer.text for layer in model.kinds] == [
        "full attention + dense", "full attention + 6 of 64 experts + shared",
    ]  # fmt: skip
    assert model.active_parameters / 1e9 == pytest.approx(3.35, rel=0.01)


@pytest.mark.torch_cuda
def test_blocks_of_keys_that_an_indexer_chooses_bound_attention() -> None:
    model = published()["MiniMaxAI/MiniMax-M3"].model
    assert model is not None
    assert model.text.endswith("57 x attention to 2048 keys + 4 of 128 experts + shared")
    assert model.indexer is not None


@pytest.mark.torch_cuda
def test_experts_that_compute_nothing_have_no_weights_and_no_share_of_a_token() -> None:
    model = published()["meituan-longcat/LongCat-Flash-Chat"].model
    assert model is not None
    assert model.active_parameters / 1e9 == pytest.approx(27, rel=0.05)  # as published
    assert not model.notes
