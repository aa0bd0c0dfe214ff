"""How ranks share a model in a launch of Hugging Face's trainers, by FSDP, DDP or DeepSpeed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from presim.errors import InputError

HF, DEEPSPEED, EAGER, MEGATRON = "hf", "deepspeed", "eager", "megatron"


@dataclasses.dataclass(frozen=True)
class Sharding:
    """A launcher's choices. ``number_format``: ``bf16``, ``fp16``, ``fp8`` or ``no``; None: the trainer says."""

    framework: str
    fields: Mapping[str, Any]  # of a plan
    overrides: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    number_format: str | None = None
    nodes: int | None = None
    world_size: int | None = None
    copies: int = 1
    micro_batches: int | None = None  # by the launcher, in place of the trainer's


IN_HOST_MEMORY = "Activations that the launch keeps in host memory stay on the GPU here: memory is an upper bound."
DATA_PARALLEL = Sharding(HF, {"data_style": "ddp"})


def check_degrees(fields: Mapping[str, Any], origin: str) -> None:
    """Check that no model is divided within its layers.

    Raises:
        InputError: it is.
    """
    for field, name in (("tensor", "tensor"), ("context", "context"), ("expert", "expert")):
        if int(fields.get(field, 1)) > 1:
            raise InputError(
                f"{origin} has {name} parallelism of {fields[field]} with Hugging Face's layers, which is not "
                "composed: run the program under `presim run`, or compare --framework torchtitan and megatron"
            )
