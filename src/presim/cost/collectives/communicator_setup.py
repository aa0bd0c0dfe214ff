"""What NCCL takes to make a communicator and to connect its ranks: once, at the first use, in no steady step.

Between the ends of an interval lies a factor of ten and more: topology detection, registration of memory and the host
decide, none of which a trace shows. The figure given is the geometric mean of the ends.

=============== ============= ===============================================================================
creation        0.2 to 3 s    "Init timings" that NCCL prints, less ``bootstrap``, in which a process waits for those
                              that come later: two dozen public logs of 2 to 32 ranks, NCCL 2.19 to 2.28, among them
                              0.37 (2 ranks, NVIDIA's documentation of NCCL_DEBUG), 0.59 (8, nccl-tests issue 273),
                              0.85 (8 H100, nccl issue 534), 0.86 (16, nccl issue 1412), 2.8 (8 B200, nccl issue 1646)
... each rank   up to 37 ms   2.5 minutes for some thousands of GPUs (taken as 4,096; nccl issue 1156)
connecting      0.02 to 1 s   rings, trees or the pairs of an all-to-all: ``connections`` of the same logs
a peer's link   0.01 to 0.7 s 10 to 100 ms for the first sends (nccl issue 415), 700 ms on two H100 (nccl issue 1487)
=============== ============= ===============================================================================
"""

from __future__ import annotations

import dataclasses
import math

_CREATION_S = (0.2, 3.0)
_RANK_S = 150 / 4096
_CONNECTION_S = (0.02, 1.0)
_PEER_S = (0.01, 0.7)


@dataclasses.dataclass(frozen=True)
class SetUp:
    """Seconds, once: the ends of an interval, and the geometric mean between."""

    low_s: float = 0.0
    high_s: float = 0.0

    @property
    def seconds(self) -> float:
        """What is taken, where one figure is needed."""
        return math.sqrt(self.low_s * self.high_s)

    def __add__(self, other: SetUp) -> SetUp:
        """One after the other; both fast or both slow, for one machine does both."""
        return SetUp(self.low_s + other.low_s, self.high_s + other.high_s)


def creation(ranks: int) -> SetUp:
    """Of a communicator of so many ranks; of one rank nothing is set up."""
    low, high = _CREATION_S
    return SetUp(low, max(high, _RANK_S * ranks)) if ranks > 1 else SetUp()


def connection() -> SetUp:
    """Of a communicator's ranks for its collectives, or of their pairs for an all-to-all."""
    return SetUp(*_CONNECTION_S)


def peer() -> SetUp:
    """Of two ranks that send and receive."""
    return SetUp(*_PEER_S)
