"""Log-normal distributions as options write them: `lognormal:mean=8000,p99=30000,max=32768`, and their cut means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping

from presim.errors import InputError
from presim.system.files import shortened

_Z99 = 2.3263  # standard deviations from the median to the 99th percentile of a normal distribution
LARGEST_RATIO = math.exp(_Z99**2 / 2)  # of the 99th percentile of a log-normal to its mean
_NORMAL = statistics.NormalDist()
_HALVINGS = 60


def read_figures(
    fields: str, bounds: Mapping[str, tuple[float, float]], refusal: Callable[[str], str]
) -> dict[str, float]:
    """The figures of ``KEY=NUMBER,KEY=NUMBER``.

    ``bounds``: by key, the least and the largest figure; ``refusal``: the sentence on a field that is not within them.

    Raises:
        InputError: a key is not known or stands twice, or its figure is not within the bounds.
    """
    figures: dict[str, float] = {}
    for field in fields.split(","):
        key, _, value = field.partition("=")
        if key in figures:
            raise InputError(f"{key} stands twice in {shortened(fields)!r}; leave one of them out")
        try:
            figures[key] = float(value)
        except ValueError:
            figures[key] = math.nan
        least, largest = bounds.get(key, (math.nan, math.nan))
        if not least <= figures[key] <= largest:
            raise InputError(refusal(shortened(field)))
    return figures


def uncut_mean(mean: float, spread: float, bound: float) -> float:
    """The mean of the log-normal that has ``mean`` once what it draws is cut at ``bound``.

    Frameworks log the mean of what engines return, in which a cut response counts with the tokens that it has.
    """
    deviation = math.sqrt(math.log1p(spread**2))
    low, high = math.log(mean), math.log(bound) + 6 * deviation
    if not deviation or cut_mean(high, deviation, bound) <= mean:
        return mean
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if cut_mean(middle, deviation, bound) < mean else (low, middle)
    return math.exp(low)


def cut_mean(log_mean: float, deviation: float, bound: float) -> float:
    """The mean of a log-normal of this mean (its logarithm) of which no draw is above ``bound``."""
    distance = (math.log(bound) - log_mean) / deviation
    inside = math.exp(log_mean) * _NORMAL.cdf(distance - deviation / 2)
    return inside + bound * (1 - _NORMAL.cdf(distance + deviation / 2))


def spread_of_p99(ratio: float) -> float:
    """Standard deviation / mean of the log-normal whose 99th percentile is ``ratio`` (1 to LARGEST_RATIO) means.

    ln(ratio) is z s - s^2 / 2, for the standard deviation s of the logarithm; the smaller solution is meant.
    """
    deviation = _Z99 - math.sqrt(max(_Z99**2 - 2 * math.log(ratio), 0.0))
    return math.sqrt(math.expm1(deviation**2))
