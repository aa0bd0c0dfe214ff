"""The model that a config means, as vLLM's class on tensors without memory: where transformers has none."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import torch

from presim.composition.models.export.refusal import Refusal
from presim.system.files import write_file
from presim.system.files.scratch import temporary_folder

_GENERATING = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")
_OTHERS = (
    "_EMBEDDING_MODELS", "_LATE_INTERACTION_MODELS", "_REWARD_MODELS", "_TOKEN_CLASSIFICATION_MODELS",
    "_SEQUENCE_CLASSIFICATION_MODELS", "_SPECULATIVE_DECODING_MODELS",
)  # fmt: skip


def version() -> str:
    """The installed vLLM's version; empty if there is none."""
    if importlib.util.find_spec("vllm") is None:
        return ""
    from importlib.metadata import version

    return version("vllm")


def build(raw: dict[str, Any], architecture: str) -> tuple[torch.nn.Module, Any]:
    """vLLM's model and its text part's config. Code that comes with the checkpoint is not run.

    Raises:
        Refusal: vLLM does not have the architecture, or its code cannot build it, with its own message.
    """
    from presim.composition.graph.export import vllm_models

    vllm_models.prepare()
    from vllm.model_executor.models.registry import ModelRegistry

    if architecture not in ModelRegistry.get_supported_archs():
        raise Refusal(f"has the architecture {architecture}, which neither transformers nor vLLM {version()} has")
    if not _generates(architecture):
        raise Refusal(f"is no generator of text: vLLM serves {architecture} for other tasks; give a decoder's config")
    _register(raw)
    try:
        with temporary_folder("vllm") as folder:
            write_file(Path(folder, "config.json"), json.dumps(raw).encode())
            model, config = vllm_models.instantiated(str(folder), torch.bfloat16)
    except Exception as error:
        raise Refusal(f"cannot be built by vLLM {version()}: {' '.join(str(error).split())[:300]}") from error
    return model, config.model_config.hf_text_config


def _generates(architecture: str) -> bool:
    """Whether vLLM's tables (0.33) have an architecture under text, alone or with images and sound."""
    from vllm.model_executor.models import registry

    def listed(tables: tuple[str, ...]) -> bool:
        return any(architecture in getattr(registry, table, {}) for table in tables)

    return listed(_GENERATING) or not listed(_OTHERS)


def _register(raw: dict[str, Any]) -> None:
    """A config class without defaults for a model type that neither transformers nor vLLM has one for."""
    from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    kind = str(raw.get("model_type", ""))
    if kind and kind not in CONFIG_MAPPING and kind not in _CONFIG_REGISTRY:
        AutoConfig.register(kind, type("PlainConfig", (PretrainedConfig,), {"model_type": kind}))
