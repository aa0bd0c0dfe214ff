"""Refuses work that would take too long or too much memory before it starts, with the estimate.

An estimate is a count times what one takes, measured once; it says "about", and is meant to tell minutes from days.
"""

from __future__ import annotations

import dataclasses
import re

from presim.errors import InputError

_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_UNITS_BYTES = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_PART = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*([A-Za-z]+)")


@dataclasses.dataclass(frozen=True)
class Budget:
    """What one call may take. The default suits a person who waits, on a laptop."""

    seconds: float = 600.0
    memory_bytes: float = 8 * (1 << 30)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What some work takes, as a count of things and what all of them take."""

    count: int
    things: str  # "requests"
    seconds: float
    memory_bytes: float = 0.0


def check(estimate: Estimate, budget: Budget | None = None, instead: str = "") -> None:
    """Check an estimate. ``instead``: what else to do than to lower the count.

    Raises:
        InputError: it exceeds the budget (None: the default). The sentence has the count that would fit.
    """
    budget = budget or Budget()
    share = max(estimate.seconds / budget.seconds, estimate.memory_bytes / budget.memory_bytes)
    if share <= 1:
        return
    takes = duration(estimate.seconds) + (f" and {size(estimate.memory_bytes)}" if estimate.memory_bytes else "")
    limit = duration(budget.seconds) + (f" and {size(budget.memory_bytes)}" if estimate.memory_bytes else "")
    fits = _rounded(estimate.count / share)
    advice = f"use at most {fits:,}" if fits else "lower it and what it is multiplied with"
    raise InputError(
        f"{estimate.count:,} {estimate.things} would take about {takes}, more than the budget of {limit}: {advice}"
        + (f", or {instead}" if instead else "")
    )


def budget_of(text: str, option: str = "--budget") -> Budget:
    """A budget from words such as ``2h``, ``32GiB`` or ``2h,32GiB``; the other part keeps its default.

    ``option``: its name in a sentence.

    Raises:
        InputError: a part is neither a time nor a size of memory.
    """
    limits = {"seconds": Budget().seconds, "memory_bytes": Budget().memory_bytes}
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        name = "" if match is None else "seconds" if match[2] in _UNITS_S else "memory_bytes"
        unit = {**_UNITS_S, **_UNITS_BYTES}.get(match[2] if match else "", 0)
        if match is None or not unit or not float(match[1]):
            raise InputError(f"{option} is a time, memory or both, such as 2h, 32GiB or 2h,32GiB, not {text[:40]!r}")
        limits[name] = float(match[1]) * unit
    return Budget(**limits)


def duration(seconds: float) -> str:
    """A rough duration: "40 minutes"."""
    for unit, length_s in (("years", 3.156e7), ("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:,.0f} {unit}"
    return f"{seconds:.0f} seconds"


def size(memory_bytes: float) -> str:
    """A rough size: "12 GiB"."""
    for unit, length in (("TiB", 1 << 40), ("GiB", 1 << 30)):
        if memory_bytes >= length:
            return f"{memory_bytes / length:,.0f} {unit}"
    return f"{memory_bytes / (1 << 20):,.0f} MiB"


def _rounded(count: float) -> int:
    """A count rounded down to two digits, so that it fits."""
    whole_count = int(count)
    unit = int(10 ** max(len(str(whole_count)) - 2, 0))
    return whole_count // unit * unit
