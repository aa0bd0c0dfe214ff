"""A measurement, and the checks of a row."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import typing
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.bounds import datasheet_ns
from presim.hardware import Gpu, catalogue
from presim.trace.signatures import Copy, Kernel, Signature

PROFILE = "presim profile"
AT_WORK = (PROFILE, "kineto")  # sources measured on a busy GPU, with its clocks; the others are idle between kernels
AS_AT_WORK = (*AT_WORK, "simumax")  # its products on B200 take as long as in its own runs, a fifth longer than others'
_TOLERANCE = 0.98  # boost clocks above the datasheet and rounding of the timer
_LONGEST_NS = 600e9  # ten minutes: a longer kernel means that the unit is wrong
_SHORTEST_NS = 200.0  # shorter than any launch: the unit is wrong
_SLOWEST = (
    100.0  # relative to the formula. Of 1.25 million public rows, the slowest took 75 times as long, 749 over 20 times
)
_MAY_BE_NONE = ("bytes", "bytes_read", "bytes_written", "elements", "group", "nnz")
REPEATED = "a second row for the same work and source"
_SHORT_NS = 1e3  # the formula does not apply to shorter times


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Measured duration of one piece of work on one GPU."""

    gpu: str  # catalogue id
    signature: Signature
    duration_ns: float
    source: str  # who measured it: dataset and framework, or presim profile
    spread: float = 0.0  # relative distance of the quartiles if the source has it; else 0
    samples: int = 1
    other_work: tuple[Signature, ...] = ()  # other work included in the duration


@dataclasses.dataclass
class Intake:
    """Collects rows, keeps possible ones, and counts the others by reason."""

    accepted: list[Measurement] = dataclasses.field(default_factory=list)
    rejected: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def take(self, rows: Iterable[Measurement | str]) -> Intake:
        """Add an importer's rows: measurements, or reasons why there is none."""
        seen = {(row.gpu, row.signature, row.source) for row in self.accepted}
        for row in rows:
            reason = row if isinstance(row, str) else reason_to_reject(row)
            if not reason and isinstance(row, Measurement):
                key = (row.gpu, row.signature, row.source)
                reason = REPEATED if key in seen else ""
                seen.add(key)
                if not reason:
                    self.accepted.append(row)
            if reason:
                self.rejected[reason] += 1
        return self


def reason_to_reject(row: Measurement) -> str:
    """Why a row is impossible, as text; empty if it is possible."""
    return reasons_to_reject([row])[0]


def reasons_to_reject(rows: Sequence[Measurement]) -> list[str]:
    """Why each row is impossible, as text; empty if it is possible."""
    reasons = [_reason_by_minima(row) for row in rows]
    slow_indices: dict[str, list[int]] = collections.defaultdict(list)
    for index, row in enumerate(rows):
        gpu = catalogued(row.gpu)
        # the formula's minimum, so that few rows need the formula
        if not reasons[index] and gpu and row.duration_ns >= _slowest_ns(datasheet_ns(row.signature, gpu)):
            slow_indices[row.gpu].append(index)
    for name, indices in slow_indices.items():
        prices = _formulas(name).price([rows[index].signature for index in indices])
        for index, price in zip(indices, prices):
            if price is not None and rows[index].duration_ns > _SLOWEST * price.duration_ns:
                reasons[index] = "a hundred times as slow as the formula says: another unit?"
    return reasons


def _reason_by_minima(row: Measurement) -> str:
    if not math.isfinite(row.duration_ns) or row.duration_ns <= 0:
        return "a duration that is not a positive number"
    if not 0 <= row.spread < math.inf or row.samples < 1:
        return "a spread or a number of samples that cannot be"
    if not possible(row.signature):
        return "sizes that are no positive numbers"
    if not _SHORTEST_NS <= row.duration_ns <= _LONGEST_NS:
        return "a duration outside 0.2 us to 10 min: another unit?"
    gpu = catalogued(row.gpu)
    if gpu is None:
        return f"a GPU that the catalogue does not have: {row.gpu}"
    if row.duration_ns < _TOLERANCE * datasheet_ns(row.signature, gpu):
        return "faster than the datasheet's peak allows"
    return ""


def plausible(durations_ns: NDArray[np.float64], least_ns: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Durations that `reason_to_reject` takes for certain, by the datasheet's minima; others need its closer look."""
    within = (durations_ns >= _SHORTEST_NS) & (durations_ns <= _LONGEST_NS)
    slowest = _SLOWEST * np.maximum(least_ns, _SHORT_NS)
    return within & (durations_ns >= _TOLERANCE * least_ns) & (durations_ns < slowest)


def positive_fields(kind: type[Signature]) -> tuple[str, ...] | None:
    """Names of the whole numbers that have to be positive; None if some stand in tuples."""
    types = typing.get_type_hints(kind)
    names = tuple(name for name, least in _least_sizes(kind) if least > 0)
    return names if all(types[name] is int for name in names) else None


def possible(signature: Signature) -> bool:
    """Whether each size is possible: bytes and options may be 0, nothing is negative."""
    for name, least in _least_sizes(type(signature)):
        if min(_numbers(getattr(signature, name)), default=least) < least:
            return False
    return True


def _numbers(value: object) -> Iterable[int]:
    """The numbers in a field: one, several, or several with names; -1 for what an importer took for a number."""
    if isinstance(value, tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int):
        yield value
    elif not isinstance(value, str):
        yield -1


@functools.cache
def _least_sizes(kind: type[Signature]) -> tuple[tuple[str, int], ...]:
    """The numeric fields and their minimum values."""
    sizes = []
    types = typing.get_type_hints(kind)  # without their bounds
    for field in msgspec.structs.fields(kind):
        if types[field.name] is int or getattr(types[field.name], "__origin__", None) is tuple:
            optional = issubclass(kind, (Copy, Kernel)) or field.name in _MAY_BE_NONE or not field.required
            sizes.append((field.name, -1 if field.name == "peer" else 0 if optional else 1))
    return tuple(sizes)


def _slowest_ns(least_ns: float) -> float:
    """Time that no row is said to exceed by the formula, which is at least the datasheet's minimum."""
    return _SLOWEST * max(least_ns, _SHORT_NS)


@functools.cache
def _formulas(name: str) -> AnalyticEstimator:
    return AnalyticEstimator(catalogue.gpu(name))


@functools.cache
def catalogued(name: str) -> Gpu | None:
    """Cached lookup of a GPU, since tables have a million rows and the catalogue does not change."""
    return catalogue.gpu(name) if name in catalogue.ids(Gpu) else None
