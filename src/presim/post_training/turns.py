"""Responses of several turns: between two of them a tool or an environment answers, in wall-clock time."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.post_training.answer_times import AnswerTimes

Ints = NDArray[np.int64]
_AT_ONCE = AnswerTimes()


@dataclasses.dataclass(frozen=True)
class Turns:
    """How often a response waits for its environment, for how long, and what it reads from there."""

    count: int = 1
    answers: AnswerTimes = _AT_ONCE  # of the environment
    tool_tokens: int = 0  # of an answer; they are read and trained beside, but not generated
    workers: int = 0  # answers of the environment at once; others wait. 0: any number

    @property
    def read_tokens(self) -> int:
        """Tokens of all answers in a response."""
        return (self.count - 1) * self.tool_tokens

    def delays_ns(self, responses: int, seed: int) -> Ints:
        """Seconds of the answers before each turn, of one response after the other; none before the first."""
        delays = np.zeros((responses, self.count))
        if self.count > 1 and self.answers:
            delays[:, 1:] = self.answers.draw(np.random.default_rng(seed), (responses, self.count - 1))
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
