"""Seconds in which a tool, an environment or a judge answers: a mean, a log-normal, or a file of measured seconds."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.post_training.log_normal import LARGEST_RATIO, cut_mean, read_figures, spread_of_p99, uncut_mean
from presim.system.files import names_file, read_text, shortened

Floats = NDArray[np.float64]
_LONGEST_S = 1e5  # more than a day for an answer
_WIDEST = 10.0  # largest standard deviation / mean
_MOST_MEASURED = 1_000_000
_BOUNDS = {"mean": (0.0, _LONGEST_S), "p99": (0.0, _LONGEST_S), "max": (0.0, _LONGEST_S), "cv": (0.0, _WIDEST)}
_NOTATION = "2, 2~0.8, lognormal:mean=2,p99=20,max=60 or a file of seconds"


@dataclasses.dataclass(frozen=True)
class AnswerTimes:
    """Distribution of the seconds of an answer: all equal, log-normal, or drawn from measured ones."""

    mean_s: float = 0.0  # of the log-normal before it is cut
    spread: float = 0.0  # its standard deviation / mean; 0: all are equal
    longest_s: float = math.inf  # answers that take longer end here, as a timeout ends them
    measured_s: tuple[float, ...] = ()

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Draw seconds."""
        if self.measured_s:
            return rng.choice(np.array(self.measured_s), shape)
        deviation = math.sqrt(math.log1p(self.spread**2))
        drawn = np.exp(deviation * rng.standard_normal(shape) - deviation**2 / 2)
        return np.minimum(self.mean_s * drawn, self.longest_s)

    @property
    def expected_s(self) -> float:
        """The mean of what is drawn."""
        if self.measured_s or not self.spread or math.isinf(self.longest_s):
            return self.mean_s
        deviation = math.sqrt(math.log1p(self.spread**2))
        return cut_mean(math.log(self.mean_s), deviation, self.longest_s)

    @property
    def text(self) -> str:
        """In words."""
        if not self.spread:
            return f"{self.mean_s:,.3g} s an answer"
        drawn_text = "measured" if self.measured_s else "log-normal"
        return f"{self.expected_s:,.3g} s an answer on average, {drawn_text}"

    def __bool__(self) -> bool:
        """Whether answers take time."""
        return self.mean_s > 0


def answer_times(word: str, option: str) -> AnswerTimes:
    """The distribution that a word says: ``2``, ``2~0.8``, ``lognormal:mean=2,p99=20,max=60``, or a file of seconds.

    ``option``: its name in refusals. ``mean`` is that of seconds cut at ``max``; ``p99`` and ``cv`` (deviation / mean)
    are those before.

    Raises:
        InputError: it is none of them.
    """
    kind, colon, fields = word.partition(":")
    if colon and kind == "lognormal":
        return _log_normal(fields, word, option)
    if names_file(word):
        return _measured(word)
    mean, tilde, spread = word.partition("~")
    try:
        times = AnswerTimes(float(mean), float(spread) if tilde else 0.0)
    except ValueError:
        times = AnswerTimes(-1.0)
    if not (0 <= times.mean_s <= _LONGEST_S and 0 <= times.spread <= _WIDEST):
        raise InputError(
            f"{option} is a number of seconds (at most {_LONGEST_S:,.0f}) or their distribution, written as "
            f"{_NOTATION}, not {shortened(word)!r}; correct it"
        )
    return times


def _log_normal(fields: str, word: str, option: str) -> AnswerTimes:
    def refusal(field: str) -> str:
        return (
            f"{option}: {field!r} is not one of mean, p99 and max (0 to {_LONGEST_S:,.0f} s) and cv (0 to "
            f"{_WIDEST:g}); write it like lognormal:mean=2,p99=20,max=60"
        )

    figures = read_figures(fields, _BOUNDS, refusal)
    mean_s, longest_s = figures.get("mean", 0.0), figures.get("max", math.inf)
    if not mean_s or ("p99" in figures) == ("cv" in figures):
        raise InputError(
            f"{option}: {shortened(word)!r} needs a mean above 0, and either p99 or cv (deviation / mean); write it "
            "like lognormal:mean=2,p99=20,max=60"
        )
    if longest_s < mean_s:
        raise InputError(f"{option}: {mean_s:g} s on average are above max={longest_s:g}; correct one of both")
    if "p99" in figures and not 1 <= figures["p99"] / mean_s <= LARGEST_RATIO:
        raise InputError(
            f"{option}: no log-normal with a mean of {mean_s:g} s has its 99th percentile at {figures['p99']:g}: that "
            f"lies from {mean_s:g} to {mean_s * LARGEST_RATIO:.3g}; correct p99"
        )
    spread = figures["cv"] if "cv" in figures else spread_of_p99(figures["p99"] / mean_s)
    mean_s = uncut_mean(mean_s, spread, longest_s) if "max" in figures else mean_s
    return AnswerTimes(mean_s, spread, longest_s)


def _measured(path: str) -> AnswerTimes:
    try:
        seconds = tuple(float(word) for word in read_text(path, "list seconds, one per line").split())
    except ValueError as error:
        raise InputError(
            f"{shortened(path)} contains something other than numbers ({error}); list seconds, one per line"
        ) from error
    if not 0 < len(seconds) <= _MOST_MEASURED or not all(0 <= value <= _LONGEST_S for value in seconds):
        raise InputError(
            f"{shortened(path)} has seconds that are not from 0 to {_LONGEST_S:,.0f}, none, or more than "
            f"{_MOST_MEASURED:,}; correct it"
        )
    mean_s = float(np.mean(seconds))
    return AnswerTimes(mean_s, float(np.std(seconds)) / mean_s if mean_s else 0.0, max(seconds), seconds)
