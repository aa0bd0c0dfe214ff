"""FSDP2 with expert parallelism: each block has two units, sharded by different groups of ranks.

As in torchtitan's ``apply_fsdp``, experts are sharded by the ranks that hold the same experts. The host waits for token
counts within each block, so the next block's units are prefetched explicitly in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.composition.runtime.fsdp2 import Fsdp2
from presim.composition.schedule import Action, BlockRun
from presim.composition.units import Name, gradient_keys, unit_of
from presim.trace.schema import Phase


class ExpertFsdp2(Fsdp2):
    """FSDP2 for a group of ranks and a group of ranks with the same experts."""

    def forward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """Forward pass: gather the next block's parameters while a block runs."""
        entries, root = self._entries, self._root(chunk)
        actions = entries.begin()
        self._gathered = None
        if root in self._units:
            actions += [*entries.gather(root, Phase.FORWARD), entries.finish(root, Phase.FORWARD, None)]
            self._gathered = root
        order = self._blocks(runs, root)
        for unit_name in self._of(order[0]) if order else ():
            actions += entries.gather(unit_name, Phase.FORWARD)
        for run in runs:
            name = unit_of(self._graph, run)
            if name in order:
                for unit_name in self._of(name):
                    actions.append(entries.finish(unit_name, Phase.FORWARD, self._gathered))
                    self._gathered = unit_name
                actions += self._prefetch(order, name, Phase.FORWARD)
            actions.append(run)
            if name in order and self._reshard and not (self._keep_last and name == order[-1]):
                actions += [entries.release(unit_name, Phase.FORWARD) for unit_name in self._of(name)]
        return actions

    def backward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """Backward pass, with the same prefetch; a block's expert gradients are reduced before its other gradients."""
        entries, root = self._entries, self._root(chunk)
        order = self._blocks(runs, root)
        actions = entries.turn(self._gathered)
        freed_blocks = order[int(self._keep_last) :] if self._reshard else []  # units freed in the forward pass
        for unit_name in reversed(self._of(freed_blocks[0])) if freed_blocks else ():
            actions += entries.gather(unit_name, Phase.BACKWARD)
        gradient_storages = gradient_keys(self._graph, runs)
        open_block: Name | None = None
        for run in runs:
            name = unit_of(self._graph, run)
            if open_block not in (None, name):
                actions += self._reduced(open_block, gradient_storages, micro)
                open_block = None
            if name in order and open_block is None:
                if name in freed_blocks:
                    actions += [entries.finish(unit_name, Phase.BACKWARD, unit_name) for unit_name in self._of(name)]
                    actions += self._prefetch(freed_blocks, name, Phase.BACKWARD)
                open_block = name
            actions.append(run)
        actions += self._reduced(open_block, gradient_storages, micro)
        if root in self._units:
            actions += self._reduce(root, gradient_storages, micro)
        return [*actions, entries.end()]

    def _blocks(self, runs: Sequence[BlockRun], root: Name) -> list[Name]:
        names = dict.fromkeys(unit_of(self._graph, run) for run in runs)
        return [name for name in names if name != root and name in self._units]

    def _prefetch(self, order: list[Name], name: Name, phase: Phase) -> list[Action]:
        """Gather the next block; in the backward pass its experts first."""
        following = order[order.index(name) + 1 :][:1]
        units = [unit_name for block in following for unit_name in self._of(block)]
        return [action for unit_name in (reversed(units) if phase is Phase.BACKWARD else units)
                for action in self._entries.gather(unit_name, phase)]  # fmt: skip

    def _reduced(
        self, name: Name | None, gradient_storages: dict[tuple[Name, str], tuple[object, ...]], micro: int
    ) -> list[Action]:
        units = self._of(name) if name is not None else []
        return [action for unit_name in reversed(units) for action in self._reduce(unit_name, gradient_storages, micro)]
