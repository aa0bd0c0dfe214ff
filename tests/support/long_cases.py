"""Cases of a table of which `make test` runs few, so that it stays short; `make test-long` runs the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
LONG_RUN = "PRESIM_TESTS_LONG"  # set by `make test-long`


def marked(table: Iterable[T], long: Iterable[str], name: Callable[[T], str] = str) -> list[Any]:
    """Parameters of a test: cases whose names are in ``long`` are marked so. A name that no case has is an error."""
    cases = {name(case): case for case in table}
    long_names = set(long)
    assert long_names <= cases.keys(), f"no such cases: {sorted(long_names - cases.keys())}"
    return [
        pytest.param(case, id=case_name, marks=[pytest.mark.long] if case_name in long_names else [])
        for case_name, case in cases.items()
    ]


def examples(count: int) -> int:
    """Examples of a property: so many, and three times as many in `make test-long`."""
    return 3 * count if LONG_RUN in os.environ else count
