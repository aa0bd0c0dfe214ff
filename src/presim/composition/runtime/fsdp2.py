"""Fully sharded data parallelism as in `torch.distributed.fsdp.fully_shard` (FSDP2); each repeated block is a unit.

Parameters are stored as fp32 shards. Before a block runs, forward and backward, they are cast to the model's type,
gathered and copied out. Gradients are reduce-scattered in fp32. Backward prefetches the next block. All of this happens
in every micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.composition.block_templates import rounded
from presim.composition.entry_templates import Tables
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.parameters import size
from presim.composition.host_gaps import HostTimes
from presim.composition.runtime.fsdp2_entries import Entries
from presim.composition.runtime.optimizer import Held, parameters
from presim.composition.schedule import Action, BlockRun, Do, Key
from presim.composition.units import Name, Unit, gradient_keys, unit_of
from presim.trace.schema import Phase

_MASTER = 4  # bytes of an fp32 element


class Fsdp2:
    """FSDP2 for one group of ranks."""

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
        has_root: bool = True,
    ) -> None:
        """``replicas``.

        Number of groups that each shard the parameters, and the group that reduces gradients between them.

        ``keep_last``: keep the last block's parameters between its passes. ``experts``: number of ranks that shard
        expert units, and their group. ``has_root``: parameters outside blocks stay gathered from the first pass on;
        else they are units as blocks are.
        """
        self._has_root = has_root
        self._keep_last = keep_last
        self._graph, self._reshard = graph, reshard
        self._tables, self._hosts = tables, hosts
        self._units = {unit.name: unit for unit in units}
        self._entries = Entries(self._units, ranks, group, tables, hosts, replicas, experts)
        self._gathered: Name | None = None  # unit with a gathered buffer that is not yet freed

    def forward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """Forward pass: gather parameters before the blocks that need them."""
        entries, root = self._entries, self._root(chunk)
        actions = entries.begin()
        self._gathered = None
        if root in self._units:
            actions += [*entries.gather(root, Phase.FORWARD), entries.finish(root, Phase.FORWARD, None)]
            self._gathered = root
        names = [unit_of(self._graph, run) for run in runs]
        gathered_names = (
            [name for name in names if name in self._units and name != root][-1:] if self._keep_last else []
        )
        places = range(len(runs))
        for run_index, run, name in zip(places, runs, names):
            sharded = name != root and name in self._units
            if sharded and names[run_index - 1 : run_index] != [name]:
                actions += [*entries.gather(name, Phase.FORWARD), entries.finish(name, Phase.FORWARD, self._gathered)]
                self._gathered = name
            actions.append(run)
            if (
                sharded
                and self._reshard
                and name not in gathered_names
                and names[run_index + 1 : run_index + 2] != [name]
            ):
                actions.append(entries.release(name, Phase.FORWARD))
        return actions

    def backward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """Backward pass: gather freed parameters again, and reduce gradients after the blocks that compute them."""
        entries, root = self._entries, self._root(chunk)
        order = [name for name in dict.fromkeys(unit_of(self._graph, run) for run in runs) if name in self._units]
        order = [name for name in order if name != root] if self._reshard else []
        actions = entries.turn(self._gathered)
        freed_units = order[int(self._keep_last) :] if self._reshard else []  # units freed in the forward pass
        actions += entries.gather(freed_units[0], Phase.BACKWARD) if freed_units else []
        gradient_storages = gradient_keys(self._graph, runs)
        open_unit: Name | None = None  # unit with gradients being computed
        for run in runs:
            name = unit_of(self._graph, run)
            if open_unit is not None and open_unit != name:
                actions += self._reduce(open_unit, gradient_storages, micro)
                open_unit = None
            if name != root and name in self._units and open_unit is None:
                open_unit = name
                if name in freed_units:
                    actions.append(entries.finish(name, Phase.BACKWARD, name))
                    following = freed_units[freed_units.index(name) + 1 :]
                    actions += entries.gather(following[0], Phase.BACKWARD) if following else []
            actions.append(run)
        if open_unit is not None:
            actions += self._reduce(open_unit, gradient_storages, micro)
        if root in self._units:
            actions += self._reduce(root, gradient_storages, micro)
        return [*actions, entries.end()]

    def _root(self, chunk: int) -> Name:
        return (-1, chunk) if self._has_root else ()

    def end(self) -> list[Action]:
        """No actions."""
        return []

    def held(self) -> list[Held]:
        """Gradient shards in fp32."""
        held_tensors = []
        for unit in self._units.values():
            shards = tuple(self._entries.shards(unit))
            key: Key = ("reduce", "shard", unit.name)
            held_tensors.append(
                Held(unit.name, key, rounded(sum(shards) * _MASTER), True, shards, experts=unit.experts)
            )
        return held_tensors

    def setup(self) -> list[Do]:
        """Allocate parameter shards in fp32."""
        shards = [shard for tensor in self.held() for shard in tensor.shards]
        return [parameters([shard * _MASTER for shard in shards], self._tables, self._hosts)]

    def before_second(self) -> list[Do]:
        """No actions."""
        return []

    def update(self) -> list[Do]:
        """No actions."""
        return []

    def after_update(self) -> list[Action]:
        """No actions."""
        return []

    def _of(self, name: Name) -> list[Name]:
        """Units of a block; the experts' unit comes last."""
        return [unit_name for unit_name in (name, (*name, 1)) if unit_name in self._units]

    def _reduce(self, name: Name, gradient_storages: dict[tuple[Name, str], Key], micro: int) -> list[Action]:
        unit = self._units[name]
        gradients = [
            (gradient_storages.get((unit.home, parameter.name)), size(parameter)) for parameter in unit.parameters
        ]
        present_gradients = [(key, gradient_bytes) for key, gradient_bytes in gradients if key is not None]
        waits = unit.experts or (*name, 1) not in self._units
        return self._entries.reduce(name, present_gradients, unit.parameters[0].dtype, micro, waits=waits)
