"""Lengths of prompts and responses: a mean, a log-normal with its 99th percentile, or a file of numbers."""

from __future__ import annotations

import math
import statistics

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.serving.workloads.generate import Lengths, lengths_of
from presim.system.files import shortened

Ints = NDArray[np.int64]
_Z99 = 2.3263  # standard deviations from the median to the 99th percentile of a normal distribution
LARGEST_RATIO = math.exp(_Z99**2 / 2)  # of the 99th percentile of a log-normal to its mean
_EXAMPLE = "lognormal:mean=8000,p99=30000,max=32768"
_KEYS = ("mean", "p99", "cv", "max", "group")
_MOST_TOKENS = 1 << 20
_NORMAL = statistics.NormalDist()
_HALVINGS = 60


def response_lengths(word: str) -> Lengths:
    """The distribution that a word describes, in tokens; lengths above ``max`` are cut to it, as engines do.

    ``mean`` is that of the cut lengths, ``p99`` and ``cv`` are those of the log-normal before; ``group`` is read by
    `group_share`.

    Raises:
        InputError: it is none, or no log-normal has such a mean and percentile.
    """
    kind, colon, fields = word.partition(":")
    if not colon or kind != "lognormal":
        return lengths_of(word)
    figures = _figures(fields, word)
    mean = figures.get("mean")
    if mean is None:
        raise InputError(f"{shortened(word)!r} has no mean; write it like {_EXAMPLE}")
    if ("p99" in figures) == ("cv" in figures):
        raise InputError(f"{shortened(word)!r} needs either p99 or cv (deviation / mean); write it like {_EXAMPLE}")
    bound = int(figures.get("max", _MOST_TOKENS))
    if bound < mean:
        raise InputError(
            f"responses of {mean:,.0f} tokens on average are above their max={bound:,}; correct one of both"
        )
    spread = figures["cv"] if "cv" in figures else _spread(mean, figures["p99"])
    return Lengths(uncut_mean(mean, spread, bound) if "max" in figures else mean, spread, longest=bound)


def uncut_mean(mean: float, spread: float, bound: float) -> float:
    """The mean of the log-normal that has ``mean`` once its lengths are cut at ``bound``.

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
    """The mean of a log-normal of this mean (its logarithm) whose lengths are cut."""
    distance = (math.log(bound) - log_mean) / deviation
    inside = math.exp(log_mean) * _NORMAL.cdf(distance - deviation / 2)
    return inside + bound * (1 - _NORMAL.cdf(distance + deviation / 2))


def _figures(fields: str, word: str) -> dict[str, float]:
    figures: dict[str, float] = {}
    for field in fields.split(","):
        key, _, value = field.partition("=")
        try:
            figures[key] = float(value)
        except ValueError:
            figures[key] = math.nan
        if key not in _KEYS or not _is_possible(key, figures[key]):
            raise InputError(
                f"{shortened(field)!r} in {shortened(word)!r} is not one of mean, p99 and max (1 to {_MOST_TOKENS:,} "
                f"tokens), cv, or group (0 to 1); write it like {_EXAMPLE}"
            )
    return figures


def _is_possible(key: str, figure: float) -> bool:
    if key == "group":
        return 0 <= figure <= 1
    return (0 if key == "cv" else 1) <= figure <= _MOST_TOKENS


def group_share(word: str) -> float:
    """The share of the variance of log-lengths between prompts that a word of `response_lengths` says; else none."""
    kind, _, fields = word.partition(":")
    return _figures(fields, word).get("group", 0.0) if kind == "lognormal" else 0.0


def draw_groups(lengths: Lengths, groups: int, samples: int, share: float, rng: np.random.Generator) -> Ints:
    """Lengths of so many samples of each group; those of a group are alike by ``share`` of their log's variance."""
    if not share or not lengths.spread:
        return lengths.draw(rng, groups * samples)
    sigma = math.sqrt(math.log1p(lengths.spread**2))
    deviates = math.sqrt(share) * np.repeat(rng.standard_normal(groups), samples)
    deviates += math.sqrt(1 - share) * rng.standard_normal(groups * samples)
    drawn = np.exp(math.log(lengths.mean) - sigma**2 / 2 + sigma * deviates)
    return np.clip(np.rint(drawn), lengths.least, lengths.longest).astype(np.int64)


def _spread(mean: float, percentile_99: float) -> float:
    """Standard deviation / mean of the log-normal with this mean and 99th percentile.

    ln(p99 / mean) is z s - s^2 / 2, for the standard deviation s of the logarithm; the smaller solution is meant.
    """
    ratio = percentile_99 / mean
    if not 1 <= ratio <= LARGEST_RATIO:
        raise InputError(
            f"no log-normal with a mean of {mean:,.0f} has its 99th percentile at {percentile_99:,.0f}: that lies from "
            f"{mean:,.0f} to {mean * LARGEST_RATIO:,.0f}; correct p99"
        )
    return deviation_of_p99(ratio)


def deviation_of_p99(ratio: float) -> float:
    """Standard deviation / mean of the log-normal whose 99th percentile is ``ratio`` (1 to LARGEST_RATIO) means."""
    deviation = _Z99 - math.sqrt(max(_Z99**2 - 2 * math.log(ratio), 0.0))
    return math.sqrt(math.expm1(deviation**2))


def longest(lengths: Lengths) -> int:
    """The largest number of tokens that can be drawn in practice: the bound, or five deviations above the median."""
    if lengths.drawn_from:
        return max(lengths.drawn_from)
    if not lengths.spread:
        return round(lengths.mean)
    deviation = math.sqrt(math.log1p(lengths.spread**2))
    return min(lengths.longest, round(lengths.mean * math.exp(5 * deviation - deviation**2 / 2)))
