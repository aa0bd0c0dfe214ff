"""One measurement, and the checks that a row passes before anything is made of it."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Iterable

import msgspec

from presim.cost.analytic.estimator import AnalyticEstimator
from presim.cost.bounds import datasheet_ns
from presim.hardware import Gpu, catalogue
from presim.trace.signatures import Copy, Kernel, Signature

PROFILE = "presim profile"
AT_WORK = (PROFILE, "kineto")  # sources of times at the clocks of a GPU in the midst of a job; those of others rest
AS_AT_WORK = (*AT_WORK, "simumax")  # its products on B200 take as long as in its own runs, a fifth longer than others'
_TOLERANCE = 0.98  # clocks above the datasheet's boost and rounding of the timer make up for the rest
_LONGEST_NS = 600e9  # ten minutes: no kernel, so the unit is wrong
_SHORTEST_NS = 200.0  # shorter than any launch: likewise
_SLOWEST = 100.0  # times the formula's. Of 1.25 million public rows the slowest took 75 times as long, 749 above 20
_MAY_BE_NONE = ("bytes", "bytes_read", "bytes_written", "elements", "group", "nnz")
_SHORT_NS = 1e3  # no formula says less


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
    if not 0 <= row.spread < math.inf or row.samples < 1:
        return "a spread or a number of samples that cannot be"
    if not possible(row.signature):
        return "sizes that are no positive numbers"
    if not _SHORTEST_NS <= row.duration_ns <= _LONGEST_NS:
        return "a duration outside 0.2 us to 10 min: another unit?"
    gpu = _gpu(row.gpu)
    if gpu is None:
        return f"a GPU that the catalogue does not have: {row.gpu}"
    if row.duration_ns < _TOLERANCE * datasheet_ns(row.signature, gpu):
        return "faster than the datasheet's peak allows"
    return "a hundred times as slow as the formula says: another unit?" if _is_slow(row, gpu) else ""


def possible(signature: Signature) -> bool:
    """Whether each size of the work is one: bytes and what is off by default may be 0, nothing is negative."""
    for name, least in _least_sizes(type(signature)):
        if min(_numbers(getattr(signature, name)), default=least) < least:
            return False
    return True


def _numbers(value: object) -> Iterable[int]:
    """The numbers in a field: one, several, or several with names."""
    if isinstance(value, tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int):
        yield value


@functools.cache
def _least_sizes(kind: type[Signature]) -> tuple[tuple[str, int], ...]:
    """The fields that are numbers, or several, and the least that each may be."""
    sizes = []
    for field in msgspec.structs.fields(kind):
        if field.type is int or getattr(field.type, "__origin__", None) is tuple:
            optional = issubclass(kind, (Copy, Kernel)) or field.name in _MAY_BE_NONE or not field.required
            sizes.append((field.name, -1 if field.name == "peer" else 0 if optional else 1))
    return tuple(sizes)


def _is_slow(row: Measurement, gpu: Gpu) -> bool:
    if row.duration_ns < _SLOWEST * max(datasheet_ns(row.signature, gpu), _SHORT_NS):
        return False  # the formula says no less than that, so that few rows need it
    (price,) = _formulas(gpu.id).price([row.signature])
    return price is not None and row.duration_ns > _SLOWEST * price.duration_ns


@functools.cache
def _formulas(name: str) -> AnalyticEstimator:
    return AnalyticEstimator(catalogue.gpu(name))


@functools.cache
def _gpu(name: str) -> Gpu | None:
    """Looked up once, not for each of a million rows: the catalogue is part of the program."""
    return catalogue.gpu(name) if name in catalogue.ids(Gpu) else None
