"""Fully sharded data parallelism as `torch.distributed.fsdp.fully_shard` does it (FSDP2), each repeated block a unit.

Parameters lie sharded in fp32; they are cast, gathered in the model's type and copied out before a block runs, forward
and backward; gradients are reduce-scattered in fp32. Backward gathers the next block ahead. That is done for every
micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.compose.blocks import rounded
from presim.compose.hosts import HostTimes
from presim.compose.rows import Tables
from presim.compose.runtime.fsdp2_entries import Entries
from presim.compose.runtime.optimizer import Held, parameters
from presim.compose.schedule import Action, Do, Key, Run
from presim.compose.units import Name, Unit, gradient_keys, unit_of
from presim.graph.parameters import size
from presim.graph.schema import OperatorGraph
from presim.trace.schema import Phase

_MASTER = 4  # bytes of fp32


class Fsdp2:
    """The pass, for one group of ranks."""

    def __init__(
        self,
        graph: OperatorGraph,
        units: Sequence[Unit],
        ranks: int,
        group: int,
        reshard: bool,
        tables: Tables,
        hosts: HostTimes,
        replicas: tuple[int, int] = (1, -1),
        keep_last: bool = False,
        experts: tuple[int, int] = (1, -1),
    ) -> None:
        """``replicas``: groups of ranks that shard the parameters each, and the group they reduce gradients in.

        ``keep_last``: parameters of the last block stay between its passes. ``experts``: ranks that shard units of
        experts, and their group.
        """
        self._keep_last = keep_last
        self._graph, self._reshard = graph, reshard
        self._tables, self._hosts = tables, hosts
        self._units = {unit.name: unit for unit in units}
        self._entries = Entries(self._units, ranks, group, tables, hosts, replicas, experts)
        self._gathered: Name | None = None  # whose gathered buffer is still held

    def forward(self, runs: Sequence[Run], chunk: int, micro: int) -> list[Action]:
        """Parameters are gathered before the blocks that need them."""
        entries, root = self._entries, (-1, chunk)
        actions = entries.begin()
        self._gathered = None
        if root in self._units:
            actions += [*entries.gather(root, Phase.FORWARD), entries.finish(root, Phase.FORWARD, None)]
            self._gathered = root
        names = [unit_of(self._graph, run) for run in runs]
        kept = [name for name in names if name in self._units and name != root][-1:] if self._keep_last else []
        for run, name in zip(runs, names):
            sharded = name != root and name in self._units
            if sharded:
                actions += [*entries.gather(name, Phase.FORWARD), entries.finish(name, Phase.FORWARD, self._gathered)]
                self._gathered = name
            actions.append(run)
            if sharded and self._reshard and name not in kept:
                actions.append(entries.release(name, Phase.FORWARD))
        return actions

    def backward(self, runs: Sequence[Run], chunk: int, micro: int) -> list[Action]:
        """Parameters that were freed are gathered again, and gradients reduced after the blocks that make them."""
        entries, root = self._entries, (-1, chunk)
        order = [name for name in dict.fromkeys(unit_of(self._graph, run) for run in runs) if name in self._units]
        order = [name for name in order if name != root] if self._reshard else []
        actions = entries.turn(self._gathered)
        again = order[int(self._keep_last) :] if self._reshard else []  # what forward has freed
        actions += entries.gather(again[0], Phase.BACKWARD) if again else []
        made = gradient_keys(self._graph, runs)
        open_unit: Name | None = None  # whose gradients are being made
        for run in runs:
            name = unit_of(self._graph, run)
            if open_unit is not None and open_unit != name:
                actions += self._reduce(open_unit, made, micro)
                open_unit = None
            if name != root and name in self._units and open_unit is None:
                open_unit = name
                if name in again:
                    actions.append(entries.finish(name, Phase.BACKWARD, name))
                    following = again[again.index(name) + 1 :]
                    actions += entries.gather(following[0], Phase.BACKWARD) if following else []
            actions.append(run)
        if open_unit is not None:
            actions += self._reduce(open_unit, made, micro)
        if root in self._units:
            actions += self._reduce(root, made, micro)
        return [*actions, entries.end()]

    def end(self) -> list[Action]:
        """Nothing is left to do."""
        return []

    def held(self) -> list[Held]:
        """The shards of gradients, in fp32."""
        found = []
        for unit in self._units.values():
            shards = tuple(self._entries.shards(unit))
            key: Key = ("reduce", "shard", unit.name)
            found.append(Held(unit.name, key, rounded(sum(shards) * _MASTER), True, shards, experts=unit.experts))
        return found

    def setup(self) -> list[Do]:
        """Shards of parameters in fp32."""
        shards = [shard for one in self.held() for shard in one.shards]
        return [parameters([shard * _MASTER for shard in shards], self._tables, self._hosts)]

    def before_second(self) -> list[Do]:
        """Nothing is done."""
        return []

    def update(self) -> list[Do]:
        """Nothing is added to the optimizer's step."""
        return []

    def after_update(self) -> list[Action]:
        """Nothing is left to do."""
        return []

    def _of(self, name: Name) -> list[Name]:
        """A block's units, its experts' last."""
        return [one for one in (name, (*name, 1)) if one in self._units]

    def _reduce(self, name: Name, made: dict[tuple[Name, str], Key], micro: int) -> list[Action]:
        unit = self._units[name]
        gradients = [(made.get((unit.home, one.name)), size(one)) for one in unit.parameters]
        known = [(key, held) for key, held in gradients if key is not None]
        waits = unit.experts or (*name, 1) not in self._units
        return self._entries.reduce(name, known, unit.parameters[0].dtype, micro, waits=waits)
