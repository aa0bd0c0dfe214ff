"""Optimizers by name: state sizes and the kernel that updates parameters."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

Choice: TypeAlias = Literal["none", "adamw", "adamw-bf16", "adamw-8bit", "sgd", "momentum"]


@dataclasses.dataclass(frozen=True)
class Update:
    """An optimizer kernel: it reads parameters, gradients and states, and writes parameters and states."""

    operator: str
    states: tuple[float, ...]  # bytes per element of each state; 0: the parameter's own size
    counts: bool = True  # whether each tensor has a step counter

    def state_bytes(self, elements: int, number_bytes: int) -> tuple[int, ...]:
        """Bytes of each state for ``elements`` elements."""
        return tuple(int(elements * (size or number_bytes)) for size in self.states)

    def traffic(self, elements: int, number_bytes: int) -> tuple[int, int]:
        """(bytes read, bytes written) of an update of ``elements`` elements."""
        states, numbers = sum(self.state_bytes(elements, number_bytes)), elements * number_bytes
        return 2 * numbers + states, numbers + states


_BLOCK = 256  # elements that share a scale in 8-bit states (torchao.optim)
UPDATES: dict[str, Update] = {
    "adamw": Update("aten::_fused_adamw_", (0, 0)),
    "adamw-bf16": Update("optimizer::adamw_bf16", (2, 2)),
    "adamw-8bit": Update("optimizer::adamw_8bit", (1 + 4 / _BLOCK, 1 + 4 / _BLOCK)),
    "sgd": Update("aten::_fused_sgd_", (), counts=False),
    "momentum": Update("aten::_fused_sgd_", (0,), counts=False),
}
