"""A loop over two records of columns that is compiled in a second, for tests of compiling."""

from __future__ import annotations

from typing import Any, NamedTuple


class Program(NamedTuple):
    """What the loop reads."""

    values: Any


class State(NamedTuple):
    """What the loop writes."""

    total: Any


def run(program: Program, state: State) -> int:
    """Add the first value to the total, and return it."""
    state.total[0] += program.values[0]
    return state.total[0]  # type: ignore[no-any-return]


def divide(program: Program, state: State) -> int:
    """Divide the total by the first value, and return it."""
    state.total[0] //= program.values[0]
    return state.total[0]  # type: ignore[no-any-return]
