"""Steps of a pipeline's rank: passes of stages, and the messages between them."""

from __future__ import annotations

import dataclasses
from typing import Literal

# input, weight: the two parts of a split backward pass
FORWARD, BACKWARD, INPUT, WEIGHT = "forward", "backward", "input", "weight"
SEND, RECEIVE, EXCHANGE, WAIT = "send", "receive", "exchange", "wait"
SIGNAL, AWAIT = "signal", "await"  # dependencies between passes without a tensor
Schedule = Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe", "dualpipev", "own"]


@dataclasses.dataclass(frozen=True)
class Message:
    """A tensor that enters or leaves a stage: an activation or its gradient."""

    stage: int  # stage on this rank
    micro: int
    backward: bool  # true for a gradient
    outgoing: bool

    @property
    def neighbour(self) -> int:
        """The stage at the other end."""
        return self.stage + (1 if self.outgoing != self.backward else -1)


@dataclasses.dataclass(frozen=True)
class Signal:
    """A message that says only that a pass has ended."""

    number: int  # of the dependency
    peer: int  # rank of the pipeline at the other end
    outgoing: bool


@dataclasses.dataclass(frozen=True)
class PipelineStep:
    """A pass of a stage, or communication that starts here; the compute stream may wait for it at once."""

    kind: str
    stage: int = 0
    micro: int = 0
    messages: tuple[Message, ...] = ()
    freed: Message | None = None  # message that a wait frees, numbered over all micro-batches if some are omitted
    signal: Signal | None = None
    partner: PipelineStep | None = None  # of a forward pass: the backward pass that runs side by side with it

    @property
    def passes(self) -> tuple[PipelineStep, ...]:
        """This step and the one beside it."""
        return (self,) if self.partner is None else (self, self.partner)


def rank_of_stage(schedule: str, ranks: int, stage: int) -> int:
    """The rank that a stage lies on: round and round, or down and up again (a V).

    >>> [rank_of_stage("dualpipev", 3, stage) for stage in range(6)]
    [0, 1, 2, 2, 1, 0]

    DualPipe has each stage twice; the second copies, numbered after all first ones, lie in the opposite direction.
    """
    turns_back = schedule in ("dualpipe", "dualpipev") and stage // ranks % 2
    return ranks - 1 - stage % ranks if turns_back else stage % ranks
