"""Configurations for torchtitan's trainer: its own, with fewer layers (``--module cut_llama``)."""

from torchtitan.models.llama3 import config_registry, model_registry
from torchtitan.trainer import Trainer


def llama3_405b_of_twenty_layers() -> Trainer.Config:
    """As it is there, with 8-bit products."""
    config = config_registry.llama3_405b()
    del config.model_spec.model.layers[20:]
    return config


def llama3_405b_of_two_layers() -> Trainer.Config:
    """Compiled as it is there, with asynchronous tensor parallelism; its products stay in 16 bits."""
    config = config_registry.llama3_405b()
    config.model_spec = model_registry("405B")
    del config.model_spec.model.layers[2:]
    return config
