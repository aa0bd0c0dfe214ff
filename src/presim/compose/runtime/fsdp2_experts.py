"""FSDP2 where expert-parallel ranks share out experts: a block has two units, each of a group of ranks of its own.

As torchtitan's ``apply_fsdp``: experts are sharded by the ranks that have the same ones. The host waits for numbers of
tokens within each block, so the next block's units are gathered ahead, explicitly, in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.compose.runtime.fsdp2 import Fsdp2
from presim.compose.schedule import Action, Run
from presim.compose.units import Name, gradient_keys, unit_of
from presim.trace.schema import Phase


class ExpertFsdp2(Fsdp2):
    """The pass, for a group of ranks and one of those with the same experts."""

    def forward(self, runs: Sequence[Run], chunk: int, micro: int) -> list[Action]:
        """While a block runs, the next one's parameters are gathered."""
        entries, root = self._entries, (-1, chunk)
        actions = entries.begin()
        self._gathered = None
        if root in self._units:
            actions += [*entries.gather(root, Phase.FORWARD), entries.finish(root, Phase.FORWARD, None)]
            self._gathered = root
        order = self._blocks(runs, root)
        for one in self._of(order[0]) if order else ():
            actions += entries.gather(one, Phase.FORWARD)
        for run in runs:
            name = unit_of(self._graph, run)
            if name in order:
                for one in self._of(name):
                    actions.append(entries.finish(one, Phase.FORWARD, self._gathered))
                    self._gathered = one
                actions += self._ahead(order, name, Phase.FORWARD)
            actions.append(run)
            if name in order and self._reshard:
                actions += [entries.release(one, Phase.FORWARD) for one in self._of(name)]
        return actions

    def backward(self, runs: Sequence[Run], chunk: int, micro: int) -> list[Action]:
        """Likewise; experts' gradients are reduced before those of the rest of their block."""
        entries, root = self._entries, (-1, chunk)
        order = self._blocks(runs, root)
        actions = entries.turn(self._gathered)
        again = self._reshard  # what forward has freed
        for one in reversed(self._of(order[0])) if order and again else ():
            actions += entries.gather(one, Phase.BACKWARD)
        made = gradient_keys(self._graph, runs)
        open_block: Name | None = None
        for run in runs:
            name = unit_of(self._graph, run)
            if open_block not in (None, name):
                actions += self._reduced(open_block, made, micro)
                open_block = None
            if name in order and open_block is None:
                if again:
                    actions += [entries.finish(one, Phase.BACKWARD, one) for one in self._of(name)]
                    actions += self._ahead(order, name, Phase.BACKWARD)
                open_block = name
            actions.append(run)
        actions += self._reduced(open_block, made, micro)
        if root in self._units:
            actions += self._reduce(root, made, micro)
        return [*actions, entries.end()]

    def _blocks(self, runs: Sequence[Run], root: Name) -> list[Name]:
        names = dict.fromkeys(unit_of(self._graph, run) for run in runs)
        return [name for name in names if name != root and name in self._units]

    def _ahead(self, order: list[Name], name: Name, phase: Phase) -> list[Action]:
        """Gather the block after one; in backward its experts first."""
        following = order[order.index(name) + 1 :][:1]
        units = [one for block in following for one in self._of(block)]
        return [action for one in (reversed(units) if phase is Phase.BACKWARD else units)
                for action in self._entries.gather(one, phase)]  # fmt: skip

    def _reduced(self, name: Name | None, made: dict[tuple[Name, str], tuple[object, ...]], micro: int) -> list[Action]:
        units = self._of(name) if name is not None else []
        return [action for one in reversed(units) for action in self._reduce(one, made, micro)]
