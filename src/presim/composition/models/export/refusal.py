"""Why a config is not described."""

from __future__ import annotations


class Refusal(Exception):
    """A reason for the user, as the end of a sentence that begins with the model's name."""
