"""Optimizers by name: the states each keeps for a number, and the kernel that updates parameters."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

Choice: TypeAlias = Literal["none", "adamw", "adamw-bf16", "adamw-8bit", "sgd", "momentum"]


@dataclasses.dataclass(frozen=True)
class Update:
    """One launch reads parameters, gradients and states, and writes parameters and states."""

    operator: str
    states: tuple[float, ...]  # bytes of each state for a number; 0: as many as the number itself has
    counts: bool = True  # each tensor has a counter of steps

    def state_bytes(self, elements: int, number_bytes: int) -> tuple[int, ...]:
        """The states of so many numbers."""
        return tuple(int(elements * (size or number_bytes)) for size in self.states)

    def traffic(self, elements: int, number_bytes: int) -> tuple[int, int]:
        """(bytes read, bytes written) of an update of so many numbers."""
        states, numbers = sum(self.state_bytes(elements, number_bytes)), elements * number_bytes
        return 2 * numbers + states, numbers + states


_BLOCK = 256  # numbers that share a scale in 8-bit states (torchao.optim)
UPDATES: dict[str, Update] = {
    "adamw": Update("aten::_fused_adamw_", (0, 0)),
    "adamw-bf16": Update("optimizer::adamw_bf16", (2, 2)),
    "adamw-8bit": Update("optimizer::adamw_8bit", (1 + 4 / _BLOCK, 1 + 4 / _BLOCK)),
    "sgd": Update("aten::_fused_sgd_", (), counts=False),
    "momentum": Update("aten::_fused_sgd_", (0,), counts=False),
}
