"""The model that a config means, as transformers' class on tensors without memory."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.generation.utils import GenerationMixin
from transformers.models.auto import modeling_auto

from presim.composition.models.export import adapted, config_keys, vllm_class, with_encoders
from presim.composition.models.export.instances import configured, instantiated, plain_config
from presim.composition.models.export.refusal import Refusal


@dataclasses.dataclass(frozen=True)
class Built:
    """A model with its text part's config."""

    model: torch.nn.Module
    config: Any
    architecture: str
    origin: str
    notes: tuple[str, ...]


def build(raw: dict[str, Any]) -> Built:
    """Instantiate the class of a config.

    Raises:
        Refusal: transformers has no such class, it is no decoder, or its sizes are missing or contradict each other.
    """
    architecture = _architecture(raw)
    kind = str(raw.get("model_type", ""))
    if (make := adapted.MODELS.get(architecture)) is not None:
        return _built(*make(plain_config(raw)), raw, architecture, adapted.source(architecture))
    if architecture in with_encoders.ENCODERS:
        return _with_encoder(raw, architecture)
    model_class = _class_of(architecture) if architecture else None
    config_class = CONFIG_MAPPING[kind] if kind in CONFIG_MAPPING else getattr(model_class, "config_class", None)
    if config_class is None or (architecture and model_class is None):
        if not architecture or not vllm_class.version():
            raise Refusal(_unknown(architecture or kind, raw))
        return _of_vllm(raw, architecture)
    if config_class is not getattr(model_class, "config_class", config_class):
        config_class = _fitting(model_class, config_class, architecture, kind)
    config = configured(config_class, raw)
    return _built(instantiated(model_class or _class_for(config, kind), config), config, raw, architecture)


def _with_encoder(raw: dict[str, Any], architecture: str) -> Built:
    """The text part by its own architecture, with its encoder."""
    text = config_keys.text_part(raw)
    if text is raw:
        raise Refusal("has no part for its decoder (text_config, llm_config); give the config.json published with it")
    built = build(dict(text))
    with_encoders.add_encoder(built.model, plain_config(raw), architecture, built.config.hidden_size)
    return dataclasses.replace(built, architecture=architecture)


def _of_vllm(raw: dict[str, Any], architecture: str) -> Built:
    plain = plain_config(raw)
    config_keys.check_sizes(plain, transformers.PretrainedConfig)
    model, text = vllm_class.build(plain, architecture)
    return Built(model, text, architecture, f"vLLM {vllm_class.version()}, {type(model).__name__}", ())


def _fitting(model_class: Any, config_class: Any, architecture: str, kind: str) -> Any:
    """The config's class where the names of architecture and of model type differ."""
    class_of_architecture = model_class.config_class
    if issubclass(config_class, class_of_architecture):
        return config_class
    if kind not in config_keys.RENAMED_TYPES:
        raise Refusal(
            f"names the architecture {architecture} and the model type {kind!r}, which are of different models; "
            "correct one of them"
        )
    return class_of_architecture


def _built(model: Any, config: Any, raw: dict[str, Any], architecture: str, also_read: str = "") -> Built:
    text = config.get_text_config(decoder=True)
    if getattr(config, "is_encoder_decoder", False) or getattr(text, "is_encoder_decoder", False):
        raise Refusal(f"is an encoder with a decoder ({type(model).__name__}), which presim does not serve")
    if getattr(text, "is_decoder", None) is False and not _is_causal(model):
        raise Refusal(f"is an encoder ({type(model).__name__}), which generates no text; give a decoder's config")
    origin = f"transformers {transformers.__version__}, {type(model).__name__}"
    config_keys.check_taken(raw, config)
    notes = (*config_keys.defaults(raw, config), *config_keys.unread(raw, config, model, also_read))
    return Built(model, text, architecture or type(model).__name__, origin, notes)


def _is_causal(model: torch.nn.Module) -> bool:
    """Whether a token sees only earlier ones although its config has no flag for decoders (GPT-NeoX)."""
    return any(getattr(module, "is_causal", None) is True for module in model.modules())


def _architecture(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures")
    if names is None or names == []:
        return ""
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise Refusal(f"has architectures = {names!r}; it must be a list of names")
    return names[0]


def _class_of(architecture: str) -> Any:
    """transformers' class of a name; names in other spellings of the same letters are the same."""
    architecture = adapted.RENAMED.get(architecture, architecture)
    model_class = getattr(transformers, architecture, None)
    if model_class is None:
        plain = _letters(architecture)
        names = (name for name in dir(transformers) if name[0].isupper() and _letters(name) == plain)
        model_class = next((getattr(transformers, name) for name in names), None)
    if model_class is None or not hasattr(model_class, "config_class"):
        return None
    if not issubclass(model_class, GenerationMixin):
        raise Refusal(
            f"is no generator of text: {architecture} has no logits over a vocabulary; give a decoder's config"
        )
    return model_class


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _class_for(config: Any, kind: str) -> Any:
    """The class that generates text of a config that names no architecture."""
    for mapping in (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    ):
        if type(config) in mapping:
            return mapping[type(config)]
    raise Refusal(f"has the model type {kind!r}, of which transformers has no generator of text")


def _unknown(name: str, raw: Mapping[str, Any]) -> str:
    remote = " Code that comes with the checkpoint (auto_map) is never run." if raw.get("auto_map") else ""
    if not name:
        return "names neither an architecture nor a model type; give the config.json published with the weights"
    return (
        f"has the architecture {name}, which transformers {transformers.__version__} does not have.{remote} A newer "
        "transformers, or vLLM (pip install vllm) where it serves this model, makes it known"
    )
