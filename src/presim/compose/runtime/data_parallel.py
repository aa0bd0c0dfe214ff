"""What ranks with other data do together: the interface of its flavours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from presim.compose.runtime.optimizer import Held
from presim.compose.schedule import Action, Do, Run


class DataParallel(Protocol):
    """Adds to the passes of one rank what its flavour does before, within and after them."""

    def forward(self, runs: Sequence[Run], chunk: int, micro: int) -> list[Action]:
        """The forward pass of a stage."""

    def backward(self, runs: Sequence[Run], chunk: int, micro: int) -> list[Action]:
        """The backward pass of a stage."""

    def end(self) -> list[Action]:
        """After the last pass of a step and its messages."""

    def held(self) -> list[Held]:
        """The gradients that this rank holds at the end, for the optimizer."""

    def setup(self) -> list[Do]:
        """What is there before the first step: parameters, and buffers of gradients."""

    def before_second(self) -> list[Do]:
        """What is done once, before the second step."""

    def update(self) -> Sequence[Do]:
        """At the end of the optimizer's step."""

    def after_update(self) -> list[Action]:
        """After the optimizer."""
