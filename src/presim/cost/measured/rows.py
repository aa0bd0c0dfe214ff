"""One measurement, and the checks that a row passes before anything is made of it."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable

import msgspec

from presim.cost.bounds import datasheet_ns
from presim.hardware import Gpu, catalogue
from presim.trace.signatures import Signature

_TOLERANCE = 0.98  # clocks above the datasheet's boost and rounding of the timer make up for the rest
_LONGEST_NS = 600e9  # ten minutes: no kernel, so the unit is wrong
_SHORTEST_NS = 200.0  # shorter than any launch: likewise


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """How long one piece of work took on one GPU."""

    gpu: str  # catalogue id
    signature: Signature
    duration_ns: float
    source: str  # who measured it: dataset and framework, or presim profile
    spread: float = 0.0  # relative distance of the quartiles, where the source tells; else 0
    samples: int = 1
    beside: tuple[Signature, ...] = ()  # other work that the duration holds


@dataclasses.dataclass
class Intake:
    """Takes rows one by one, keeps those that can be true, and counts the others by reason."""

    accepted: list[Measurement] = dataclasses.field(default_factory=list)
    rejected: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def take(self, rows: Iterable[Measurement | str]) -> Intake:
        """Rows as an importer yields them: a measurement, or the reason why there is none."""
        seen = {(row.gpu, row.signature, row.source) for row in self.accepted}
        for row in rows:
            reason = row if isinstance(row, str) else wrong(row)
            if not reason and isinstance(row, Measurement):
                key = (row.gpu, row.signature, row.source)
                reason = "a second row for the same work and source" if key in seen else ""
                seen.add(key)
                if not reason:
                    self.accepted.append(row)
            if reason:
                self.rejected[reason] += 1
        return self


def wrong(row: Measurement) -> str:
    """Why a row cannot be true, in words; empty where it can."""
    if not math.isfinite(row.duration_ns) or row.duration_ns <= 0:
        return "a duration that is no positive number"
    if not _SHORTEST_NS <= row.duration_ns <= _LONGEST_NS:
        return "a duration outside 0.2 us to 10 min: another unit?"
    gpu = _gpu(row.gpu)
    if gpu is None:
        return f"a GPU that the catalogue does not have: {row.gpu}"
    if row.duration_ns < _TOLERANCE * datasheet_ns(row.signature, gpu):
        return "faster than the datasheet's peak allows"
    return ""


@functools.cache
def _gpu(name: str) -> Gpu | None:
    """Looked up once, not for each of a million rows: the catalogue is part of the program."""
    return catalogue.gpu(name) if name in catalogue.ids(Gpu) else None
