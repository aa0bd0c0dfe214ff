"""Descriptions of fields, for schemas and the documentation that is generated from them."""

from __future__ import annotations

import msgspec


def doc(text: str) -> msgspec.Meta:
    """The description of a field."""
    return msgspec.Meta(description=text)
