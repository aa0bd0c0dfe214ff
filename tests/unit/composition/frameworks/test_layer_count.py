"""The number of layers of a config, whatever its family calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.composition.frameworks import layer_count
from presim.composition.frameworks.layer_count import layers_of, with_layers

CLASSES = """
class GPT2VisionConfig:
    model_type = "gpt2_vision"
    attribute_map = {"num_hidden_layers": "depth"}

class GPT2Config(PreTrainedConfig):
    model_type = "gpt2"
    keys: list = unknown(1)
    attribute_map = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer"}
    other = unknown
"""


@pytest.fixture(autouse=True)
def _library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "configuration_gpt2.py"
    file.write_text(CLASSES)
    monkeypatch.setattr(layer_count, "_config_files", lambda model_type: iter([file]))
    layer_count._own_name.cache_clear()


def test_the_library_says_how_a_family_calls_its_layers() -> None:
    config = {"model_type": "gpt2", "n_layer": 12, "kinds": ["a", "b"] * 6}
    assert layers_of(config) == 12
    assert with_layers(config, 5) == {"model_type": "gpt2", "n_layer": 5, "kinds": ["a", "b", "a", "b", "a"]}
    assert layers_of({"model_type": "gpt2_vision", "depth": 3}) == 3


def test_the_usual_name_is_taken_where_it_stands_or_nothing_else_is_known() -> None:
    assert layers_of({"model_type": "gpt2", "num_hidden_layers": 7, "n_layer": 12}) == 7
    assert layers_of({"model_type": "other", "num_hidden_layers": 7}) == 7
    assert layers_of({"model_type": "other"}) == 0
