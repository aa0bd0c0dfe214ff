"""Steps of a pipeline's rank: passes of stages, and the messages between them."""

from __future__ import annotations

import dataclasses
from typing import Literal

FORWARD, BACKWARD, INPUT, WEIGHT = "forward", "backward", "input", "weight"  # input, weight: backward in two parts
SEND, RECEIVE, EXCHANGE, WAIT = "send", "receive", "exchange", "wait"
Schedule = Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipev"]


@dataclasses.dataclass(frozen=True)
class Message:
    """What leaves or reaches a stage: an activation at its input or output side, or the gradient of one."""

    stage: int  # of this rank
    micro: int
    backward: bool  # a gradient
    outgoing: bool

    @property
    def neighbour(self) -> int:
        """The other stage."""
        return self.stage + (1 if self.outgoing != self.backward else -1)


@dataclasses.dataclass(frozen=True)
class Step:
    """A pass of a stage, or communication: what is begun, and whether the compute stream waits at once."""

    kind: str
    stage: int = 0
    micro: int = 0
    messages: tuple[Message, ...] = ()
    freed: Message | None = None  # what a wait gives back: a message of all micro-batches, where some are left out


def place(schedule: str, ranks: int, stage: int) -> int:
    """The rank that a stage lies on: round and round, or down and up again (a V).

    >>> [place("dualpipev", 3, stage) for stage in range(6)]
    [0, 1, 2, 2, 1, 0]
    """
    turns_back = schedule == "dualpipev" and stage // ranks % 2
    return ranks - 1 - stage % ranks if turns_back else stage % ranks
