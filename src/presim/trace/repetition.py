"""The period with which a sequence of launches repeats: the steps of a job that nothing else shows."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

_LEAST_REPEATS = 3
_LEAST_SHARE = 0.5  # of all launches that the repeated ones make up
_MOST_TRIED = 400  # periods of a long sequence that are compared element by element
_SHORT = 3_000  # launches up to which every period is tried
_LIKELY = 0.3  # share of equal pairs from which a period is tried
_SEED = 0

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Repetition:
    """A stretch of a sequence whose elements repeat with a period."""

    start: int  # index of its first element
    period: int
    repeats: int

    def ends(self) -> Ints:
        """The index behind each repeat."""
        return self.start + self.period * np.arange(1, self.repeats + 1)


def find_repetition(keys: Ints) -> Repetition | None:
    """The shortest period with which most of a sequence repeats at least three times; None: there is none.

    ``keys``: (length,) identities of launches, in order. Time grows as length · log(length).
    """
    for period in _likely_periods(keys).tolist():
        start, length = _longest_run(keys[period:] == keys[:-period])
        covered = length + period if length else 0
        if covered >= max(_LEAST_REPEATS * period, _LEAST_SHARE * len(keys)):
            return Repetition(start, period, covered // period)
    return None


def _likely_periods(keys: Ints) -> Ints:
    """Periods that may hold, ascending: all of a short sequence, else those at which it resembles itself."""
    periods = np.arange(1, len(keys) // _LEAST_REPEATS + 1)
    if len(keys) <= _SHORT:
        return periods
    signs = np.random.default_rng(_SEED).choice([-1.0, 1.0], int(keys.max()) + 1)[keys]
    spectrum = np.fft.rfft(signs, 2 * len(keys))  # twice as long, so that the end does not meet the beginning
    equal_pairs = np.fft.irfft(spectrum * spectrum.conj())[periods] / (len(keys) - periods)
    likely = periods[equal_pairs >= _LIKELY]
    return likely[:_MOST_TRIED]


def _longest_run(is_equal: NDArray[np.bool_]) -> tuple[int, int]:
    """Start and length of the longest stretch of True; (0, 0) without any."""
    bounds = np.flatnonzero(np.diff(np.concatenate([[False], is_equal, [False]])))
    if not len(bounds):
        return 0, 0
    lengths = bounds[1::2] - bounds[::2]
    longest = int(np.argmax(lengths))
    return int(bounds[2 * longest]), int(lengths[longest])
