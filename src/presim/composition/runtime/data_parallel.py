"""Interface of data-parallel styles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from presim.composition.runtime.optimizer import Held
from presim.composition.schedule import Action, BlockRun, Do


class DataParallel(Protocol):
    """Adds the work of a data-parallel style to one rank's passes."""

    def forward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """The forward pass of a stage with the style's actions."""

    def backward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """The backward pass of a stage with the style's actions."""

    def end(self) -> list[Action]:
        """Actions after the last pass of a step and its messages."""

    def held(self) -> list[Held]:
        """Gradients that this rank holds for the optimizer."""

    def setup(self) -> list[Do]:
        """Actions before the first step: allocate parameters and gradient buffers."""

    def before_second(self) -> list[Do]:
        """Actions done once before the second step."""

    def update(self) -> Sequence[Do]:
        """Actions at the end of the optimizer's step."""

    def after_update(self) -> list[Action]:
        """Actions after the optimizer's step."""
