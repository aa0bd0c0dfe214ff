"""What the process that reads a model's code answers."""

from __future__ import annotations

import msgspec

from presim.composition.models.description import Model


class DescriptionReply(msgspec.Struct, frozen=True):
    """A description, or why there is none."""

    model: Model | None = None
    refusal: str = ""
