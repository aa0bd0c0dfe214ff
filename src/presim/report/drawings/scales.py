"""Scales of charts: round ticks, and the position of a value on an axis."""

from __future__ import annotations

import dataclasses
import math

_ROUND = (1, 2, 5, 10)
_LEAST_DECADES = 1e-9  # of an axis; a single value has none


@dataclasses.dataclass(frozen=True)
class Scale:
    """An axis from ``low`` to ``high``; both are positive where it is logarithmic."""

    low: float
    high: float
    is_log: bool = False

    def share(self, value: float) -> float:
        """The position of a value: 0 at the low end, 1 at the high end."""
        if self.is_log:
            return math.log(value / self.low) / max(math.log(self.high / self.low), _LEAST_DECADES)
        return (value - self.low) / ((self.high - self.low) or 1.0)

    def ticks(self, most_ticks: int) -> list[float]:
        """Round values on the axis: 1, 2 or 5 times a power of ten, or powers of ten where it is logarithmic."""
        return _powers(self.low, self.high, most_ticks) if self.is_log else round_ticks(self.low, self.high, most_ticks)


def round_ticks(low: float, high: float, most_ticks: int) -> list[float]:
    """Up to about ``most_ticks`` round values from ``low`` to ``high``.

    >>> round_ticks(0, 73, 4)
    [0.0, 20.0, 40.0, 60.0]
    """
    if not high > low:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / most_ticks))
    step = next(factor * power for factor in _ROUND if (high - low) / (factor * power) <= most_ticks)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def _powers(low: float, high: float, most_ticks: int) -> list[float]:
    """Powers of ten on a logarithmic axis; of fewer than two decades, 2 and 5 times them, too."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    exponents = [exponent for exponent in range(first, last + 1) if low <= 10.0**exponent <= high]
    if len(exponents) > 2:
        return [10.0**exponent for exponent in exponents[:: math.ceil(len(exponents) / most_ticks)]]
    values = [factor * 10.0**exponent for exponent in range(first, last) for factor in _ROUND[:3]]
    return [value for value in values if low <= value <= high]


def tick_text(value: float) -> str:
    """A tick as people read it.

    >>> [tick_text(value) for value in (0.0, 0.05, 2500.0, 1e6)]
    ['0', '0.05', '2,500', '1,000,000']
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
