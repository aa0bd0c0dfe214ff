"""Models that are known by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.errors import InputError
from presim.serving.model_lookup import config_of, find, names

# Parameters of the models' cards, in units of 10^9; cards of GLM-4.5 count a layer that predicts further tokens.
PUBLISHED = {
    "llama3.2-1b": 1.24, "llama3.2-3b": 3.21, "llama2-7b": 6.74, "llama2-13b": 13.0, "llama2-70b": 69.0,
    "llama3-8b": 8.03, "llama3-70b": 70.6, "llama3-405b": 406, "qwen3-0.6b": 0.596, "qwen3-1.7b": 1.72,
    "qwen3-4b": 4.02, "qwen3-8b": 8.19, "qwen3-14b": 14.8, "qwen3-32b": 32.8, "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235, "qwen3-coder-480b-a35b": 480, "qwen3-next-80b-a3b": 80, "qwen2.5-7b": 7.62,
    "qwen2.5-14b": 14.8, "qwen2.5-32b": 32.8, "qwen2.5-72b": 72.7, "mistral-7b": 7.25, "mistral-small-24b": 23.6,
    "mixtral-8x7b": 46.7, "mixtral-8x22b": 141, "phi-4": 14.7, "deepseek-v3": 671, "deepseek-v3.2": 672,
    "deepseek-v2-lite": 15.7, "glm-4.5": 355, "glm-4.5-air": 107, "gpt-oss-20b": 20.9, "gpt-oss-120b": 117,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_known_shape_has_the_parameters_of_the_model_s_card(name: str) -> None:
    model = find(name)
    assert model.parameters / 1e9 == pytest.approx(PUBLISHED[name], rel=0.007)


def test_names_of_repositories_and_of_versions_mean_the_same() -> None:
    assert set(PUBLISHED) <= set(names())
    assert find("meta-llama/Llama-3.2-1B").layers == find("llama-3.2-1b").layers == 16
    assert find("deepseek-ai/DeepSeek-V3.2-Exp").indexer is not None


def test_a_config_with_a_number_that_is_none_is_refused_and_one_without_an_upper_bound_is_read(tmp_path: Path) -> None:
    """Mamba's published configs have infinite limits of time steps."""
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "hidden_size": NaN}')
    with pytest.raises(InputError, match=r"config\.json: hidden_size is NaN, which is no number; give the config"):
        config_of(str(path))
    path.write_text('{"model_type": "mamba2", "time_step_limit": [0.0, Infinity]}')
    assert config_of(str(path))[0]["model_type"] == "mamba2"
