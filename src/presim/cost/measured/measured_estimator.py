"""The measured estimator: exact table rows, or interpolation between two rows, without extrapolation."""

from __future__ import annotations

import bisect
import collections
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from presim.cost.analytic.analytic_estimator import AnalyticEstimator, slowdown_at_work
from presim.cost.bounds import datasheet_ns
from presim.cost.measured.axes import Key, axes
from presim.cost.measured.measured_rows import AS_AT_WORK, PROFILE, Measurement
from presim.cost.price import Origin, Price
from presim.hardware import Gpu
from presim.hardware.constants import value
from presim.trace.signatures import Elementwise, Kernel, Signature, vectorised

_LEAST_DOUBT = 0.03  # differences between cards of one model, and between days
_THROTTLED = value("gpu.throttled_products")
_WIDEST_GAP = 4.0  # no interpolation between rows further apart than this factor


class AxisPoint(NamedTuple):
    """A measurement on an axis."""

    size: int
    log_ratio: float  # log of the measured over the analytic duration
    doubt: float


class Exact(Protocol):
    """Duration in ns and uncertainty by signature."""

    def get(self, signature: Signature, /) -> tuple[float, float] | None:
        """None if it was not measured."""
        ...


class Lines(Protocol):
    """The points along every axis, ascending."""

    def get(self, axis: Key, default: Sequence[AxisPoint], /) -> Sequence[AxisPoint]:
        """The points along an axis."""
        ...


class MeasuredEstimator:
    """Prices from rows of one GPU; rows of other GPUs are ignored.

    Several rows of one signature (from several sources) count as their median. Between two rows, the ratio to the
    analytic price is interpolated, so the price follows the formula between them.

    Prices are for a busy GPU. Times of an idle GPU (all sources but `rows.AS_AT_WORK`) are lengthened by the formula's
    effect of lower clocks, half of which is added to the uncertainty, as with learned prices
    (docs/decisions/sustained-clocks.md).
    """

    name = "measured"

    def __init__(self, gpu: Gpu, rows: Iterable[Measurement]) -> None:
        self.gpu = gpu
        self.analytic = AnalyticEstimator(gpu)
        rows_by_signature: dict[Signature, list[Measurement]] = collections.defaultdict(list)
        for row in rows:
            if row.gpu == gpu.id and not row.other_work:
                rows_by_signature[row.signature].append(row)
        signatures = list(rows_by_signature)
        bases = self.analytic.price(signatures)
        all_at_work = all(row.source in AS_AT_WORK for rows in rows_by_signature.values() for row in rows)
        slower = [1.0] * len(signatures) if all_at_work else slowdown_at_work(gpu, signatures, bases)
        self.measured = {
            key: _median(rows_by_signature[key], factor, base is not None and base.bound == "compute")
            for key, factor, base in zip(signatures, slower, bases)
        }
        self.points_by_axis = self._lines(signatures, bases)
        self._exact: Exact = self.measured
        self._points: Lines = self.points_by_axis

    @classmethod
    def of_lookups(cls, gpu: Gpu, exact: Exact, lines: Lines) -> MeasuredEstimator:
        """The estimator of prices that were made of rows before (`presim.cost.measured.price_columns`)."""
        estimator = cls(gpu, ())
        estimator._exact, estimator._points = exact, lines
        return estimator

    def _lines(self, signatures: list[Signature], bases: list[Price | None]) -> dict[Key, list[AxisPoint]]:
        """The points along every axis, ascending."""
        lines: dict[Key, list[AxisPoint]] = collections.defaultdict(list)
        for signature, base in zip(signatures, bases):
            duration, doubt = self.measured[signature]
            if base is not None:
                for key, size in axes(signature):
                    lines[key].append(AxisPoint(size, math.log(duration / base.duration_ns), doubt))
        return {key: sorted(points) for key, points in lines.items() if len(points) > 1}

    def price(self, signatures: list[Signature]) -> list[Price | None]:
        """One price per signature; None if the table neither has it nor surrounds it."""
        bases = self.analytic.price(signatures)
        return [self._price(signature, base) for signature, base in zip(signatures, bases)]

    def _price(self, signature: Signature, base: Price | None) -> Price | None:
        bound = base.bound if base else ""
        exact = self._exact.get(signature) or self._bare_kernel(signature) or self._untold_cast(signature)
        if exact is not None:
            duration, doubt = exact
            return self._price_of_duration(signature, duration, Origin.MEASURED, doubt, bound)
        between = self._interpolated_ratio(signature) if base else None
        if base is None or between is None:
            return None
        log_ratio, doubt = between
        duration = base.duration_ns * math.exp(log_ratio)
        return self._price_of_duration(signature, duration, Origin.INTERPOLATED, doubt, bound)

    def _bare_kernel(self, signature: Signature) -> tuple[float, float] | None:
        """Duration in ns and uncertainty of a kernel's launch, by a row that knows no operator (`importers.ncu`)."""
        if not isinstance(signature, Kernel) or not (signature.bytes or signature.operator):
            return None
        return self._exact.get(Kernel(signature.name, signature.grid, signature.block))

    def _untold_cast(self, signature: Signature) -> tuple[float, float] | None:
        """Duration in ns and uncertainty of a cast by a row of an older table, whose bytes tell that it is one."""
        if not isinstance(signature, Elementwise) or not signature.cast_operands:
            return None
        return self._exact.get(vectorised(signature))

    def _price_of_duration(
        self, signature: Signature, duration: float, origin: Origin, doubt: float, bound: str
    ) -> Price:
        least = max(datasheet_ns(signature, self.gpu), 1.0)
        return Price(math.ceil(max(duration, least)), origin, min(doubt, 0.9), "measured", bound)

    def _interpolated_ratio(self, signature: Signature) -> tuple[float, float] | None:
        """The ratio to the analytic price between the nearest rows, on the axis with the smallest gap."""
        best: tuple[float, float, float] | None = None
        for key, size in axes(signature):
            points = self._points.get(key, ())
            index = bisect.bisect_left(points, (size,))
            if not 0 < index < len(points) or points[index - 1].size < 1:
                continue
            low, high = points[index - 1], points[index]
            gap = high.size / low.size
            if gap <= _WIDEST_GAP and (best is None or gap < best[0]):
                best = gap, *_interpolated(low, high, size)
        return None if best is None else best[1:]


def _interpolated(low: AxisPoint, high: AxisPoint, size: int) -> tuple[float, float]:
    """Linear in the logarithm of the size. The uncertainty covers the rows' own and half of their difference."""
    share = math.log(size / low.size) / math.log(high.size / low.size)
    log_ratio = (1 - share) * low.log_ratio + share * high.log_ratio
    jump = abs(high.log_ratio - low.log_ratio) / 2
    return log_ratio, math.hypot(max(low.doubt, high.doubt), jump, _LEAST_DOUBT)


def _median(rows: list[Measurement], slower: float, is_compute: bool) -> tuple[float, float]:
    """Duration in ns and uncertainty: the largest of spread, differences between rows, and half of the clock effect.

    `presim profile` sweeps memory between its runs, so arithmetic runs at full clocks there; a step at its power limit
    lowers them.
    """
    durations = [row.duration_ns * (1.0 if row.source in AS_AT_WORK else slower) for row in rows]
    middle = statistics.median(durations)
    half_range = (max(durations) - min(durations)) / 2 / middle
    doubt = max(half_range, *(row.spread for row in rows), _LEAST_DOUBT)
    if is_compute and any(row.source == PROFILE for row in rows):
        doubt = max(doubt, _THROTTLED / 2)
    rests = any(row.source not in AS_AT_WORK for row in rows)
    return middle, math.hypot(doubt, abs(math.log(slower)) / 2) if rests else doubt
