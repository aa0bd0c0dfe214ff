"""FSDP2 with parameters that stay gathered for all micro-batches of a step, as under PyTorch's pipeline schedules.

Full gradients are accumulated in fp32 over micro-batches and reduce-scattered once, after the step's last message.
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.composition.block_templates import rounded
from presim.composition.entry_templates import Rows, Tables, Template
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.parameters import elements, size
from presim.composition.host_gaps import HostTimes
from presim.composition.runtime.fsdp2 import Fsdp2
from presim.composition.schedule import Action, BlockRun, Do, Key
from presim.composition.units import Name, Unit, gradient_keys, unit_of
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Elementwise

_MASTER = 4  # bytes of an fp32 element


class GatheredFsdp2(Fsdp2):
    """FSDP2 with gathered parameters, for one group of ranks."""

    def __init__(
        self,
        graph: OperatorGraph,
        units: Sequence[Unit],
        ranks: int,
        group: int,
        tables: Tables,
        hosts: HostTimes,
        replicas: tuple[int, int] = (1, -1),
        experts: tuple[int, int] = (1, -1),
    ) -> None:
        """Arguments as in `Fsdp2`."""
        super().__init__(graph, units, ranks, group, False, tables, hosts, replicas, experts=experts)
        self._open: set[int] = set()  # chunks with gathered parameters
        self._summed: set[Name] = set()  # units with accumulated gradients
        self._sums: dict[object, Template] = {}

    def forward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """Forward pass: gather parameters before the first micro-batch."""
        entries, root = self._entries, (-1, chunk)
        actions = entries.begin()
        if chunk in self._open:
            return [*actions, *runs]
        self._open.add(chunk)
        gathered: Name | None = None
        if root in self._units:
            actions += [*entries.gather(root, Phase.FORWARD), entries.finish(root, Phase.FORWARD, None)]
            gathered = root
        for run in runs:
            name = unit_of(self._graph, run)
            for unit_name in () if name == root else self._of(name):
                actions += [
                    *entries.gather(unit_name, Phase.FORWARD),
                    entries.finish(unit_name, Phase.FORWARD, gathered),
                ]
                gathered = unit_name
            actions.append(run)
        return [*actions, *entries.turn(gathered)]

    def backward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """Backward pass: accumulate gradients after the blocks that compute them."""
        root = (-1, chunk)
        gradient_storages = gradient_keys(self._graph, runs)
        complete = [name for name, _ in gradient_storages]
        last = {unit_of(self._graph, run): run_index for run_index, run in enumerate(runs)}
        actions: list[Action] = []
        for run_index, run in enumerate(runs):
            name = unit_of(self._graph, run)
            actions.append(run)
            if name != root and name in complete and last[name] == run_index:
                actions += [self._add(unit_name, gradient_storages) for unit_name in self._of(name)]
        if root in complete:
            actions.append(self._add(root, gradient_storages))
        return actions

    def end(self) -> list[Action]:
        """Reduce accumulated gradients, the root's first, and free parameters."""
        actions: list[Action] = []
        for name in sorted(self._units, key=lambda name: (name[0] >= 0, name)):
            unit = self._units[name]
            summed = [
                (self._sum_of(name, parameter.name), elements(parameter) * _MASTER) for parameter in unit.parameters
            ]
            actions += self._entries.reduce(name, summed, "float32")
        self._open.clear()
        self._summed.clear()
        return [*actions, self._entries.end()]

    def _add(self, name: Name, gradient_storages: dict[tuple[Name, str], Key]) -> Do:
        """Cast the first gradients; add later ones."""
        home = self._units[name].home
        present_parameters = [
            parameter for parameter in self._units[name].parameters if (home, parameter.name) in gradient_storages
        ]
        is_first = name not in self._summed
        self._summed.add(name)
        kind = (self._units[name].kind, is_first, len(present_parameters))
        if kind not in self._sums:
            rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
            for index, parameter in enumerate(present_parameters):
                count, gradient_bytes, sums = elements(parameter), size(parameter), elements(parameter) * _MASTER
                operands = 2 if is_first else 3
                cast_operands = operands if parameter.dtype != "float32" else 0
                if is_first:
                    rows.alloc(f"s{index}", rounded(sums), Category.GRADIENT, operator="aten::empty_strided")
                    cast = Elementwise(
                        gradient_bytes, sums, count, "float32", 1, "aten::copy_", cast_operands=cast_operands
                    )
                    rows.work("aten::copy_", cast)
                else:
                    add = Elementwise(
                        gradient_bytes + sums, sums, count, "float32", 1, "aten::add_", cast_operands=cast_operands
                    )
                    rows.work("aten::add_", add)
                rows.free(f"g{index}", rounded(gradient_bytes))
            self._sums[kind] = rows.template()
        named: dict[str, Key] = {
            f"g{index}": gradient_storages[home, parameter.name] for index, parameter in enumerate(present_parameters)
        }
        named |= {f"s{index}": self._sum_of(name, parameter.name) for index, parameter in enumerate(present_parameters)}
        template = self._sums[kind]
        return Do(template, tuple(named[slot] for slot in template.slots), self._units[name].scope)

    def _sum_of(self, name: Name, parameter: str) -> Key:
        return ("sum", name, parameter)
