"""Responses of several turns: between two of them a tool or an environment answers, in wall-clock time."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.system.files import shortened

Ints = NDArray[np.int64]
_LONGEST_S = 1e5  # more than a day for an answer


@dataclasses.dataclass(frozen=True)
class Turns:
    """How often a response waits for its environment, for how long, and what it reads from there."""

    count: int = 1
    tool_s: float = 0.0  # mean seconds of an answer
    tool_spread: float = 0.0  # standard deviation / mean of its log-normal; 0: all are equal
    tool_tokens: int = 0  # of an answer; they are read and trained beside, but not generated

    @property
    def read_tokens(self) -> int:
        """Tokens of all answers in a response."""
        return (self.count - 1) * self.tool_tokens

    def delays_ns(self, responses: int, seed: int) -> Ints:
        """Waits before each turn, of one response after the other; none before the first."""
        delays = np.zeros((responses, self.count))
        if self.count > 1 and self.tool_s:
            deviation = np.sqrt(np.log1p(self.tool_spread**2))
            draws = np.random.default_rng(seed).standard_normal((responses, self.count - 1))
            delays[:, 1:] = self.tool_s * np.exp(deviation * draws - deviation**2 / 2)
        return np.rint(delays.ravel() * 1e9).astype(np.int64)


def split(lengths: Ints, turns: int) -> Ints:
    """Tokens that each turn generates, [response, turn]: equal parts, none without a token."""
    if int(lengths.min(initial=turns)) < turns:
        raise InputError(
            f"a response of {int(lengths.min())} tokens has not one for each of {turns} turns; use fewer --turns or "
            "longer --response"
        )
    parts = np.repeat(lengths[:, None] // turns, turns, axis=1)
    parts[:, 0] += lengths - parts.sum(axis=1)
    return parts


def tool_seconds(word: str) -> tuple[float, float]:
    """Mean and relative deviation of ``2`` or ``2~0.8``.

    Raises:
        InputError: it is neither.
    """
    mean, tilde, spread = word.partition("~")
    try:
        mean_s, deviation = float(mean), float(spread) if tilde else 0.0
    except ValueError:
        mean_s, deviation = -1.0, 0.0
    if not (0 <= mean_s <= _LONGEST_S and 0 <= deviation <= 10):
        raise InputError(
            "--tool-seconds is a mean, or one with a relative deviation, such as 2 or 2~0.8 (at most "
            f"{_LONGEST_S:,.0f} s), not {shortened(word)!r}; correct it"
        )
    return mean_s, deviation
