"""Bridge's adapters (LoRA, DoRA) over a model whose weights are not loaded, as values do not matter."""

from __future__ import annotations

from collections.abc import Sequence

import megatron.bridge.training.setup as bridge_setup
from megatron.bridge.peft.dora import DoRA
from megatron.bridge.peft.lora import LoRA
from megatron.bridge.training.config import ConfigContainer
from omegaconf import OmegaConf

_SCHEME, _FIELD = "peft=", "peft."
_ADAPTERS = {"lora": LoRA, "dora": DoRA}


def with_adapters(config: ConfigContainer, overrides: Sequence[str]) -> list[str]:
    """Give the configuration the adapters that ``peft=lora`` or ``peft=dora`` asks for, and return the other overrides.

    ``peft.dim=16`` and the like are fields of these adapters, which Bridge's own overrides do not reach.

    Raises:
        ValueError: Bridge has no such adapters, or fields of adapters are set without them.
        TypeError: the adapters have no such field.
    """
    schemes = [override.removeprefix(_SCHEME) for override in overrides if override.startswith(_SCHEME)]
    fields = [override.removeprefix(_FIELD) for override in overrides if override.startswith(_FIELD)]
    if schemes:
        if schemes[-1] not in _ADAPTERS:
            raise ValueError(f"Bridge has no adapters {schemes[-1]!r}, but {' and '.join(_ADAPTERS)}")
        values = OmegaConf.to_container(OmegaConf.from_dotlist(fields))
        config.peft = _ADAPTERS[schemes[-1]](**values)
        config.checkpoint.pretrained_checkpoint = "none"  # Bridge wants one
        bridge_setup.checkpoint_exists = bool
        bridge_setup._load_checkpoint_from_path = lambda **arguments: None
    elif fields:
        raise ValueError(f"peft.{fields[0]} is of adapters: add peft=lora or peft=dora")
    return [override for override in overrides if not override.startswith((_SCHEME, _FIELD))]
