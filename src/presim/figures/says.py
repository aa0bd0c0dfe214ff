"""How a field of the result is described, in the JSON Schema and in the documentation."""

from __future__ import annotations

import msgspec


def says(text: str) -> msgspec.Meta:
    """The description of a field."""
    return msgspec.Meta(description=text)
