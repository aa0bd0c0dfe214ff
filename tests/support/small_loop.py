"""A loop that is compiled in a second, for tests of compiling."""

from __future__ import annotations

from typing import Any


def doubled(value: int) -> int:
    """Called by the loop, as parts of real ones are."""
    return 2 * value


def run(values: Any) -> int:
    """Twice the sum."""
    total = 0
    for value in values:
        total += doubled(value)
    return total
