"""Lengths of prompts and responses: a mean, a log-normal with its 99th percentile, or a file of numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.post_training.log_normal import LARGEST_RATIO, read_figures, spread_of_p99, uncut_mean
from presim.serving.workloads.generate import Lengths, lengths_of
from presim.system.files import shortened

Ints = NDArray[np.int64]
_EXAMPLE = "lognormal:mean=8000,p99=30000,max=32768"
_MOST_TOKENS = 1 << 20
_TOKENS = (1.0, float(_MOST_TOKENS))
_BOUNDS = {"mean": _TOKENS, "p99": _TOKENS, "max": _TOKENS, "cv": (0.0, float(_MOST_TOKENS)), "group": (0.0, 1.0)}


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


def _figures(fields: str, word: str) -> dict[str, float]:
    def refusal(field: str) -> str:
        return (
            f"{field!r} in {shortened(word)!r} is not one of mean, p99 and max (1 to {_MOST_TOKENS:,} tokens), cv, or "
            f"group (0 to 1); write it like {_EXAMPLE}"
        )

    return read_figures(fields, _BOUNDS, refusal)


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
    """Standard deviation / mean of the log-normal with this mean and 99th percentile."""
    ratio = percentile_99 / mean
    if not 1 <= ratio <= LARGEST_RATIO:
        raise InputError(
            f"no log-normal with a mean of {mean:,.0f} has its 99th percentile at {percentile_99:,.0f}: that lies from "
            f"{mean:,.0f} to {mean * LARGEST_RATIO:,.0f}; correct p99"
        )
    return spread_of_p99(ratio)


def longest(lengths: Lengths) -> int:
    """The largest number of tokens that can be drawn in practice: the bound, or five deviations above the median."""
    if lengths.drawn_from:
        return max(lengths.drawn_from)
    if not lengths.spread:
        return round(lengths.mean)
    deviation = math.sqrt(math.log1p(lengths.spread**2))
    return min(lengths.longest, round(lengths.mean * math.exp(5 * deviation - deviation**2 / 2)))
