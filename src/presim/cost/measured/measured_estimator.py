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


class Lookups(Protocol):
    """What measurements say about the signatures that are asked for."""

    def exact(self, signature: Signature, /) -> tuple[float, float] | None:
        """Duration in ns and uncertainty; None if it was not measured."""
        ...

    def sizes_around(self, axis: Key, size: int, /) -> tuple[int, int] | None:
        """The nearest measured sizes, the first below ``size`` and the second not; None if one is missing."""
        ...

    def points_around(self, axis: Key, size: int, /) -> tuple[AxisPoint, AxisPoint]:
        """The points at these sizes: the last of the smaller one and the first of the other."""
        ...


class _MadeLookups:
    """Lookups in dictionaries that are made of all rows at once."""

    def __init__(self, gpu: Gpu, analytic: AnalyticEstimator, rows: Iterable[Measurement]) -> None:
        rows_by_signature: dict[Signature, list[Measurement]] = collections.defaultdict(list)
        for row in rows:
            if row.gpu == gpu.id and not row.other_work:
                rows_by_signature[row.signature].append(row)
        signatures = list(rows_by_signature)
        bases = analytic.price(signatures)
        timings = [
            Timings.of([(row.duration_ns, row.spread, row.source) for row in rows_by_signature[signature]])
            for signature in signatures
        ]
        all_at_work = all(timing.all_at_work for timing in timings)
        slower = [1.0] * len(signatures) if all_at_work else slowdown_at_work(gpu, signatures, bases)
        self._measured = {
            key: timing.median(factor, base is not None and base.bound == "compute")
            for key, timing, factor, base in zip(signatures, timings, slower, bases)
        }
        self._points = self._lines(signatures, bases)

    def _lines(self, signatures: list[Signature], bases: list[Price | None]) -> dict[Key, list[AxisPoint]]:
        """The points along every axis, ascending."""
        lines: dict[Key, list[AxisPoint]] = collections.defaultdict(list)
        for signature, base in zip(signatures, bases):
            duration, doubt = self._measured[signature]
            if base is not None:
                for key, size in axes(signature):
                    lines[key].append(AxisPoint(size, math.log(duration / base.duration_ns), doubt))
        return {key: sorted(points) for key, points in lines.items()}

    def exact(self, signature: Signature) -> tuple[float, float] | None:
        return self._measured.get(signature)

    def sizes_around(self, axis: Key, size: int) -> tuple[int, int] | None:
        points = self._points.get(axis, [])
        index = bisect.bisect_left(points, (size,))
        return (points[index - 1].size, points[index].size) if 0 < index < len(points) else None

    def points_around(self, axis: Key, size: int) -> tuple[AxisPoint, AxisPoint]:
        index = bisect.bisect_left(self._points[axis], (size,))
        return self._points[axis][index - 1], self._points[axis][index]


class MeasuredEstimator:
    """Prices from rows of one GPU; rows of other GPUs are ignored.

    Several rows of one signature (from several sources) count as their median. Between two rows, the ratio to the
    analytic price is interpolated, so the price follows the formula between them.

    Prices are for a busy GPU. Times of an idle GPU (all sources but `rows.AS_AT_WORK`) are lengthened by the formula's
    effect of lower clocks, half of which is added to the uncertainty, as with learned prices
    (docs/decisions/sustained-clocks.md).
    """

    name = "measured"

    def __init__(self, gpu: Gpu, rows: Iterable[Measurement] = (), lookups: Lookups | None = None) -> None:
        """``lookups``: instead of rows (`presim.cost.measured.row_index`)."""
        self.gpu = gpu
        self.analytic = AnalyticEstimator(gpu)
        self._lookups = lookups or _MadeLookups(gpu, self.analytic, rows)

    def price(self, signatures: list[Signature]) -> list[Price | None]:
        """One price per signature; None if the table neither has it nor surrounds it."""
        bases = self.analytic.price(signatures)
        return [self._price(signature, base) for signature, base in zip(signatures, bases)]

    def _price(self, signature: Signature, base: Price | None) -> Price | None:
        bound = base.bound if base else ""
        exact = self._lookups.exact(signature) or self._bare_kernel(signature) or self._untold_cast(signature)
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
        return self._lookups.exact(Kernel(signature.name, signature.grid, signature.block))

    def _untold_cast(self, signature: Signature) -> tuple[float, float] | None:
        """Duration in ns and uncertainty of a cast by a row of an older table, whose bytes tell that it is one."""
        if not isinstance(signature, Elementwise) or not signature.cast_operands:
            return None
        return self._lookups.exact(vectorised(signature))

    def _price_of_duration(
        self, signature: Signature, duration: float, origin: Origin, doubt: float, bound: str
    ) -> Price:
        least = max(datasheet_ns(signature, self.gpu), 1.0)
        return Price(math.ceil(max(duration, least)), origin, min(doubt, 0.9), "measured", bound)

    def _interpolated_ratio(self, signature: Signature) -> tuple[float, float] | None:
        """The ratio to the analytic price between the nearest rows, on the axis with the smallest gap."""
        nearest: tuple[float, Key, int] | None = None
        for key, size in axes(signature):
            sizes = self._lookups.sizes_around(key, size)
            if sizes is None or sizes[0] < 1:
                continue
            gap = sizes[1] / sizes[0]
            if gap <= _WIDEST_GAP and (nearest is None or gap < nearest[0]):
                nearest = gap, key, size
        if nearest is None:
            return None
        _, key, size = nearest
        return _interpolated(*self._lookups.points_around(key, size), size)


def _interpolated(low: AxisPoint, high: AxisPoint, size: int) -> tuple[float, float]:
    """Linear in the logarithm of the size. The uncertainty covers the rows' own and half of their difference."""
    share = math.log(size / low.size) / math.log(high.size / low.size)
    log_ratio = (1 - share) * low.log_ratio + share * high.log_ratio
    jump = abs(high.log_ratio - low.log_ratio) / 2
    return log_ratio, math.hypot(max(low.doubt, high.doubt), jump, _LEAST_DOUBT)


class Timings(NamedTuple):
    """The rows of one signature."""

    durations_ns: Sequence[float]
    spreads: Sequence[float]
    sources: Sequence[str]

    @classmethod
    def of(cls, rows: Iterable[tuple[float, float, str]]) -> Timings:
        """The timings of rows with a duration, a spread and a source each."""
        return cls(*zip(*rows))

    @property
    def all_at_work(self) -> bool:
        """Whether all were measured on a busy GPU."""
        return all(source in AS_AT_WORK for source in self.sources)

    def median(self, slower: float, is_compute: bool) -> tuple[float, float]:
        """Duration in ns and uncertainty: the largest of spread, differences of rows, and half of the clock effect.

        `presim profile` sweeps memory between its runs, so arithmetic runs at full clocks there; a step at its power
        limit lowers them. ``slower``: time on a busy GPU over time on an idle one.
        """
        durations = [
            duration * (1.0 if source in AS_AT_WORK else slower)
            for duration, source in zip(self.durations_ns, self.sources)
        ]
        middle = statistics.median(durations)
        half_range = (max(durations) - min(durations)) / 2 / middle
        doubt = max(half_range, *self.spreads, _LEAST_DOUBT)
        if is_compute and PROFILE in self.sources:
            doubt = max(doubt, _THROTTLED / 2)
        return middle, doubt if self.all_at_work else math.hypot(doubt, abs(math.log(slower)) / 2)
