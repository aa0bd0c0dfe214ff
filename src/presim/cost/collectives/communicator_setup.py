"""What NCCL takes to make a communicator and to connect its ranks: once, at the first use, in no steady step.

Between the ends of an interval lies a factor of ten and more: topology detection, registration of memory and the host
decide, none of which a trace shows. The figure given is the geometric mean of the ends.

`presim.calibration` (nccl.*) has the sources.
"""

from __future__ import annotations

import dataclasses
import math

from presim.calibration import interval, value

_CREATION_S = interval("nccl.creation_s")
_RANK_S = value("nccl.creation_minutes_at_4096_ranks") * 60 / 4096
_CONNECTION_S = interval("nccl.connection_s")
_PEER_S = interval("nccl.peer_s")


@dataclasses.dataclass(frozen=True)
class SetUp:
    """Seconds, once: the ends of an interval, and the geometric mean between."""

    low_s: float = 0.0
    high_s: float = 0.0

    @property
    def seconds(self) -> float:
        """The geometric mean, as a single figure."""
        return math.sqrt(self.low_s * self.high_s)

    def __add__(self, other: SetUp) -> SetUp:
        """One after the other; both fast or both slow, for one machine does both."""
        return SetUp(self.low_s + other.low_s, self.high_s + other.high_s)


def creation(ranks: int) -> SetUp:
    """Creation of a communicator; nothing for a single rank."""
    low, high = _CREATION_S
    return SetUp(low, max(high, _RANK_S * ranks)) if ranks > 1 else SetUp()


def connection() -> SetUp:
    """Connection of a communicator's ranks for collectives, or of all pairs for an all-to-all."""
    return SetUp(*_CONNECTION_S)


def peer() -> SetUp:
    """Connection of two ranks for send and receive."""
    return SetUp(*_PEER_S)
