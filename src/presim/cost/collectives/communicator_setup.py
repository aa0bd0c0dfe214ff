"""Time to create NCCL communicators and to connect their ranks. It occurs once, at first use, in no steady step.

The intervals span a factor of ten and more. The time depends on topology detection, memory registration and the host,
which a trace does not show. Single figures are the geometric mean of both ends. `presim.hardware.constants` has the
sources (nccl.*).
"""

from __future__ import annotations

import dataclasses
import math

from presim.hardware.constants import interval, value

_CREATION_S = interval("nccl.creation_s")
_RANK_S = value("nccl.creation_minutes_at_4096_ranks") * 60 / 4096
_CONNECTION_S = interval("nccl.connection_s")
_PEER_S = interval("nccl.peer_s")


@dataclasses.dataclass(frozen=True)
class SetUp:
    """A one-time duration as an interval."""

    low_s: float = 0.0
    high_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Geometric mean of both ends."""
        return math.sqrt(self.low_s * self.high_s)

    def __add__(self, other: SetUp) -> SetUp:
        """Sum of two durations. Ends add up: a machine is fast or slow in both."""
        return SetUp(self.low_s + other.low_s, self.high_s + other.high_s)


def creation(ranks: int) -> SetUp:
    """Duration of creating a communicator; 0 for a single rank."""
    low, high = _CREATION_S
    return SetUp(low, max(high, _RANK_S * ranks)) if ranks > 1 else SetUp()


def connection() -> SetUp:
    """Duration of connecting a communicator's ranks for collectives, or of all pairs for an all-to-all."""
    return SetUp(*_CONNECTION_S)


def peer() -> SetUp:
    """Duration of connecting two ranks for send and receive."""
    return SetUp(*_PEER_S)
