"""How a field is described, in schemas and in the documentation that is made of them."""

from __future__ import annotations

import msgspec


def doc(text: str) -> msgspec.Meta:
    """The description of a field."""
    return msgspec.Meta(description=text)
