"""What a launch trains and how: a model, fields of a plan, a framework with its own options, and a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from presim.errors import InputError


@dataclasses.dataclass(frozen=True)
class LaunchedPlan:
    """A launch as a model with a plan."""

    model: str  # a name, or the path of a config
    fields: Mapping[str, Any]  # of a plan
    precision: str | None  # None: of eager layers, which have none
    overrides: tuple[str, ...]  # options of the framework
    nodes: int | None
    gpus_per_node: int | None
    notes: tuple[str, ...]
    framework: str = "megatron"
    world_size: int | None = None
    micro_batches: int | None = None  # of a rank in a step, where the launch says this and no global batch
    copies: int = 1  # of sharded parameters

    def fields_on(self, world_size: int) -> dict[str, Any]:
        """Fields of a plan that follow from the number of GPUs.

        Raises:
            InputError: the launch's degrees do not divide it.
        """
        degrees = {name: int(self.fields.get(name, 1)) for name in ("tensor", "context", "pipeline")}
        model_ranks = degrees["tensor"] * degrees["context"] * degrees["pipeline"]
        if world_size % (model_ranks * self.copies):
            copies_text = f", in {self.copies} copies" if self.copies > 1 else ""
            raise InputError(
                f"the launch holds the model once on {model_ranks} GPUs{copies_text}, and {world_size} GPUs are no "
                "multiple of it; give --world-size, or other degrees"
            )
        fields: dict[str, Any] = {}
        if self.micro_batches is not None:
            samples = self.micro_batches * int(self.fields.get("micro_batch", 1))
            fields["global_batch"] = samples * (world_size // model_ranks)
        if self.copies > 1:
            fields["shard"] = world_size // (degrees["tensor"] * degrees["pipeline"]) // self.copies
        return fields
