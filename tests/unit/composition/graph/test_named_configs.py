"""Configs of the models that are trained by name, and of those that are served by the same name."""

from __future__ import annotations

import pytest

from presim.composition.graph.take import config_file, named_models
from presim.serving.model_lookup import config_of, names
from presim.system.files import decode_json, read_bytes

SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("vocab_size", "head_dim", "tie_word_embeddings", "model_type"),
)
VERSIONS = {"mistral-7b": {"vocab_size"}}  # published training runs have v0.1, engines serve v0.3


@pytest.mark.parametrize("name", sorted({*named_models()} & {*names()}))
def test_a_model_has_one_size_in_training_and_serving(name: str) -> None:
    path = config_file(name)
    assert path is not None
    trained, served = decode_json(read_bytes(path, ""), dict[str, object]), config_of(name)[0]
    assert trained["presim_source"]
    differing = {
        field: (trained[field], served[field])
        for field in SIZES
        if field in trained and field in served and trained[field] != served[field]
    }
    assert set(differing) == VERSIONS.get(name, set())


def test_models_of_one_family_are_named_in_both() -> None:
    families = ("qwen3-1.7b", "qwen3-4b", "qwen3-14b", "qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b", "qwen2.5-72b")
    assert {*families} <= {*named_models()} & {*names()}
