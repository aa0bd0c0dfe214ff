"""How many tokens a sequence may have, by the keys and the rules of vLLM 0.33.

transformers_utils/model_arch_config_convertor.py (`derive_max_model_len_and_key`) and config/model.py
(`_get_and_verify_max_len`). What a tokenizer's own files limit is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from presim.composition.models.description import UNLIMITED

UNSTATED = 2048  # that vLLM (and SGLang, srt/utils/hf_transformers_utils.py) then takes by itself
_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_SCALED_ALREADY = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")


def lengths(config: Any) -> tuple[int, int]:
    """The most tokens of a sequence, and those that vLLM takes unless told otherwise; 0: the same."""
    stated = getattr(config, "model_max_length", None) or _least(config)
    if not stated:
        return UNLIMITED, UNSTATED
    ropes = list(_ropes(getattr(config, "rope_parameters", None)))
    longest = int(stated * _factor(config, ropes))
    if any(_kind(rope) == "longrope" for rope in ropes):  # longer prompts would change the short ones' results
        return longest, int(getattr(config, "original_max_position_embeddings", None) or 0)
    return longest, 0


def _least(config: Any) -> int | None:
    stated = [getattr(config, key, None) for key in _KEYS]
    return min((int(value) for value in stated if isinstance(value, int) and value > 0), default=None)


def _ropes(parameters: Any) -> Iterator[Mapping[str, Any]]:
    """Parameters of rotary embeddings: one set, or one for each type of layers."""
    if not isinstance(parameters, Mapping):
        return
    if any(isinstance(value, Mapping) for value in parameters.values()):
        yield from (value for value in parameters.values() if isinstance(value, Mapping))
    elif parameters:
        yield parameters


def _kind(rope: Mapping[str, Any]) -> str:
    return str(rope.get("rope_type") or rope.get("type") or "default")


def _factor(config: Any, ropes: list[Mapping[str, Any]]) -> float:
    """By which embeddings are stretched beyond the length in the config; Gemma 3 has the product there."""
    if "gemma3" in str(getattr(config, "model_type", "")):
        return 1.0
    factors = [rope.get("factor") for rope in ropes if _kind(rope) not in _SCALED_ALREADY]
    return float(next((factor for factor in reversed(factors) if factor), 1.0))
