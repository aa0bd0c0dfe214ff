"""Which cases a file of results still lacks."""

from __future__ import annotations

import collections
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving_work.timing import Case, Row

ATTEMPTS = 2


def key_of(family: str, shape: Row) -> str:
    """What a case is known by."""
    return json.dumps([family, shape], sort_keys=True)


def unmeasured(rows: Sequence[Row], cases: Sequence[Case]) -> list[Case]:
    """Cases without a result, each once; those that failed come last, and are given up after the second time."""
    done = {key_of(row["family"], row["shape"]) for row in rows if "error" not in row}
    failed = collections.Counter(key_of(row["family"], row["shape"]) for row in rows if "error" in row)
    wanted = {key_of(case.family, case.shape): case for case in cases}
    left = [key for key in wanted if key not in done and failed[key] < ATTEMPTS]
    return [wanted[key] for key in sorted(left, key=failed.__getitem__)]
