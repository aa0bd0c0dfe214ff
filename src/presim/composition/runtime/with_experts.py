"""DDP and Megatron's distributed optimizer with expert parallelism: experts have buckets and buffers of their own.

Gradients of experts are reduced over the ranks that hold the same experts, all others over all data-parallel ranks. For
DDP, experts are modules that the outer DDP ignores, wrapped by one of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.composition.runtime.data_parallel import DataParallel
from presim.composition.runtime.optimizer import Held
from presim.composition.schedule import Action, BlockRun, Do


class WithExperts:
    """Two of a style side by side: of experts, and of everything else."""

    def __init__(self, dense: DataParallel, experts: DataParallel) -> None:
        self._both = (dense, experts)

    def forward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """The forward pass with the actions of both before each block."""
        return _merge_actions(*(parallel.forward(runs, chunk, micro) for parallel in self._both))

    def backward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """The backward pass with the actions of both after each block."""
        return _merge_actions(*(parallel.backward(runs, chunk, micro) for parallel in self._both))

    def end(self) -> list[Action]:
        """Wait for the reductions of both."""
        return [action for parallel in self._both for action in parallel.end()]

    def held(self) -> list[Held]:
        """The gradients of both."""
        return [tensor for parallel in self._both for tensor in parallel.held()]

    def setup(self) -> list[Do]:
        """Allocate all buffers."""
        return [action for parallel in self._both for action in parallel.setup()]

    def before_second(self) -> list[Do]:
        """What both do once."""
        return [action for parallel in self._both for action in parallel.before_second()]

    def update(self) -> list[Do]:
        """Cast the updated shards of both."""
        return [action for parallel in self._both for action in parallel.update()]

    def after_update(self) -> list[Action]:
        """Gather the parameters of both."""
        return [action for parallel in self._both for action in parallel.after_update()]


def _merge_actions(first: Sequence[Action], second: Sequence[Action]) -> list[Action]:
    """Two lists with the same runs in the same order, as one list with each run once."""
    merged: list[Action] = []
    second_actions = iter(second)
    for action in first:
        if isinstance(action, BlockRun):
            for other in second_actions:
                if isinstance(other, BlockRun):
                    break
                merged.append(other)
        merged.append(action)
    return [*merged, *second_actions]
