"""Instances of transformers' classes: a config of the text part, and the model on the meta device."""

from __future__ import annotations

from typing import Any

import torch

from presim.composition.models.export import config_keys
from presim.composition.models.export.refusal import Refusal

_FOR_TRAINING = ("quantization_config", "compression_config", "auto_map", "torch_dtype", "dtype")  # change no layer


def plain_config(raw: dict[str, Any]) -> dict[str, Any]:
    """The config without keys that are of the checkpoint rather than the model."""
    config = {key: value for key, value in raw.items() if key not in _FOR_TRAINING}
    return {key: plain_config(value) if isinstance(value, dict) else value for key, value in config.items()}


def configured(config_class: Any, raw: dict[str, Any]) -> Any:
    """The class's config, after a check of the sizes that the file must have.

    Raises:
        Refusal: sizes are missing, or the class refuses them, with its own message.
    """
    plain = plain_config(raw)
    config_keys.check_sizes(plain, config_class)
    config = configured_part(config_class, plain)
    config.get_text_config(decoder=True).allow_global_per_layer_attribute_access = True  # layers are read one by one
    _tie_as_text(config, plain)
    return config


def configured_part(config_class: Any, plain: dict[str, Any]) -> Any:
    """The class's config of a part, such as an encoder.

    Raises:
        Refusal: the class refuses it, with its own message.
    """
    try:
        return config_class.from_dict({key: value for key, value in plain.items() if key != "model_type"})
    except Exception as error:
        raise Refusal(f"is refused by transformers' {config_class.__name__}: {_sentence(error)}") from error


def _tie_as_text(config: Any, plain: dict[str, Any]) -> None:
    """Tie embeddings of a model with encoders as its text part says, unless the file itself does.

    Engines build the text part by its own config; transformers' classes around it have defaults of their own.
    """
    text = config.get_text_config(decoder=True)
    if text is config or "tie_word_embeddings" in plain:
        return
    part = config_keys.text_part(plain)
    tied = part.get("tie_word_embeddings", getattr(text, "tie_word_embeddings", None))
    if part is not plain and isinstance(tied, bool):
        config.tie_word_embeddings = tied


def instantiated(model_class: Any, config: Any) -> torch.nn.Module:
    """The model without memory.

    Raises:
        Refusal: its code cannot build it, with its own message.
    """
    try:
        with torch.device("meta"):
            model: torch.nn.Module = model_class._from_config(config)
    except Exception as error:
        raise Refusal(f"cannot be built by transformers' {model_class.__name__}: {_sentence(error)}") from error
    return model


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:300] or type(error).__name__
