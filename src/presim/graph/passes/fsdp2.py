"""Fully sharded data parallelism as `torch.distributed.fsdp.fully_shard` does it (FSDP2), each repeated block a unit.

Parameters lie sharded in fp32; they are cast, gathered in the model's type and copied out before a block runs, forward
and backward; gradients are reduce-scattered in fp32. Backward gathers the next block ahead. Entries and their order are
those of captured runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from presim.graph.blocks import rounded
from presim.graph.hosts import HostTimes
from presim.graph.rows import Rows, Tables, Template
from presim.graph.schedule import Action, Do, Key, Run, Schedule
from presim.graph.schema import OperatorGraph, Parameter
from presim.graph.units import ROOT, Unit, elements, gradient_keys, size, unit_of, units
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Collective, Copy, Elementwise, Optimizer

_COMPUTE, _COPY_IN, _GATHER, _SCATTER = 0, 2, 3, 4  # streams, see rows.STREAMS
_MASTER = 4  # bytes of fp32


def shard_elements(parameter: Parameter, ranks: int) -> int:
    """Numbers of a parameter's shard: split along its first dimension, padded to equal parts."""
    rows = parameter.shape[0] if parameter.shape else 1
    return -(-rows // ranks) * (elements(parameter) // max(1, rows))


class Fsdp2:
    """The pass, for one group of ranks."""

    def __init__(self, graph: OperatorGraph, ranks: int, group: int, reshard: bool, tables: Tables, hosts: HostTimes):
        self._graph, self._ranks, self._group, self._reshard = graph, ranks, group, reshard
        self._tables, self._hosts = tables, hosts
        self._units = {unit.name: unit for unit in units(graph)}
        self._templates: dict[object, Template] = {}

    def apply(self, schedule: Schedule) -> Schedule:
        """The schedule with parameters gathered before, and gradients reduced after, the blocks that need them."""
        runs = [action for action in schedule if isinstance(action, Run)]
        order = [unit_of(self._graph, run) for run in runs if self._is_backward(run) and not self._is_again(run)]
        order = [name for name in dict.fromkeys(order) if name != ROOT and name in self._units]
        actions: list[Action] = []
        gathered: tuple[int, int] | None = None  # whose gathered buffer is still held
        begun = turned = False
        open_unit: tuple[int, int] | None = None  # in backward: whose gradients are being made
        for action in schedule:
            if not isinstance(action, Run):
                actions.append(action)
                continue
            name = unit_of(self._graph, action)
            backward = self._is_backward(action)
            if not begun:
                begun = True
                actions += self._begin()
                if ROOT in self._units:
                    actions += [*self._gather(ROOT, Phase.FORWARD), self._finish(ROOT, Phase.FORWARD, None)]
                    gathered = ROOT
            if backward and not turned:
                turned = True
                actions += self._turn(gathered)
                if order:
                    actions += self._gather(order[0], Phase.BACKWARD)
            if backward and open_unit is not None and open_unit != name:
                actions += self._reduce(open_unit, runs)
                open_unit = None
            if name != ROOT and name in self._units:
                if backward:
                    if open_unit is None:
                        actions.append(self._finish(name, Phase.BACKWARD, name))
                        following = order[order.index(name) + 1 :]
                        actions += self._gather(following[0], Phase.BACKWARD) if following else []
                        open_unit = name
                else:
                    actions += [*self._gather(name, Phase.FORWARD), self._finish(name, Phase.FORWARD, gathered)]
                    gathered = name
            actions.append(action)
            if not backward and name != ROOT and self._reshard and name in self._units:
                actions.append(self._release(name, Phase.FORWARD))
        if open_unit is not None:
            actions += self._reduce(open_unit, runs)
        if ROOT in self._units:
            actions += self._reduce(ROOT, runs)
        actions.append(self._end())
        return tuple(actions)

    def _is_backward(self, run: Run) -> bool:
        return self._graph.segments[run.segment].backward or run.again

    def _is_again(self, run: Run) -> bool:
        return run.again and not self._graph.segments[run.segment].backward

    # Each makes one template a shape of unit and names its slots.

    def _begin(self) -> list[Action]:
        def rows(rows: Rows) -> None:
            rows.record("begin", _COMPUTE)
            rows.wait("begin", _COPY_IN)
            rows.wait("begin", _GATHER)

        return [self._do("begin", Phase.FORWARD, rows, {"begin": ("fsdp", "begin")}, "")]

    def _gather(self, name: tuple[int, int], phase: Phase) -> list[Action]:
        unit = self._units[name]
        count = len(unit.parameters)
        shard = sum(shard_elements(parameter, self._ranks) for parameter in unit.parameters)
        dtype = unit.parameters[0].dtype
        local, whole = shard * dtype_bytes(dtype), shard * dtype_bytes(dtype) * self._ranks

        def rows(rows: Rows) -> None:
            rows.alloc("in", rounded(local), Category.TEMPORARY, operator="aten::empty", stream=_COPY_IN)
            if dtype_bytes(dtype) != _MASTER:
                cast = _together(shard * _MASTER, local, shard, dtype, count)
                rows.work(cast.operator, cast, stream=_COPY_IN)
            rows.alloc("out", rounded(whole), Category.TEMPORARY, operator="aten::empty", stream=_COPY_IN)
            copy = _together(local, local, shard, dtype, count)
            rows.work(copy.operator, copy, stream=_COPY_IN)
            rows.record("copied", _COPY_IN)
            rows.wait("copied", _GATHER)
            rows.work("nccl::all_gather", Collective("all_gather", whole, dtype, self._group), stream=_GATHER)
            for event in ("ended", "recorded", "gathered"):
                rows.record(event, _GATHER)
            rows.free("in", rounded(local))

        named = {slot: ("fsdp", slot, name) for slot in ("in", "out", "copied", "ended", "recorded", "gathered")}
        return [self._do(("gather", unit.segment), phase, rows, named, unit.scope if phase is Phase.FORWARD else "")]

    def _finish(self, name: tuple[int, int], phase: Phase, released: tuple[int, int] | None) -> Action:
        """Copy out what was gathered; the buffer of `released` is given back: its own, or that of the one before."""
        unit = self._units[name]
        shard = sum(shard_elements(parameter, self._ranks) for parameter in unit.parameters)
        dtype = unit.parameters[0].dtype
        whole = shard * dtype_bytes(dtype) * self._ranks
        table = 8 * min(4096, -(-shard * dtype_bytes(dtype) // 14336)) + 8 * len(unit.parameters)
        backward = phase is Phase.BACKWARD

        def rows(rows: Rows) -> None:
            if not backward and released is not None:
                rows.wait("before", _COPY_IN)
                rows.wait("before", _GATHER)
            rows.wait("gathered", _COMPUTE)
            for index, parameter in enumerate(unit.parameters):
                padded = shard_elements(parameter, self._ranks) * self._ranks * dtype_bytes(parameter.dtype)
                rows.alloc(f"p{index}", rounded(padded), Category.PARAMETER, operator="FSDP::all_gather_copy_out")
            rows.alloc("table", rounded(table), Category.TEMPORARY, operator="aten::empty_strided")
            rows.work("aten::copy_", Copy("h2d", table, pinned=True))
            rows.record("sent", _COMPUTE)
            split = "aten::split_with_sizes_copy"
            rows.work(split, Elementwise(whole, whole, whole // dtype_bytes(dtype), dtype, operator=split))
            rows.free("table", rounded(table))
            rows.record("copied out", _COMPUTE)
            if backward:
                rows.wait("copied out", _COPY_IN)
                rows.wait("copied out", _GATHER)
            if released is not None:
                rows.free("released", rounded(self._gathered_bytes(released)))

        named: dict[str, Key] = {slot: ("fsdp", slot, name) for slot in ("gathered", "table", "sent", "copied out")}
        named |= {f"p{index}": ("fsdp", "parameter", name, index) for index in range(len(unit.parameters))}
        if released is not None:
            named["before"], named["released"] = ("fsdp", "copied out", released), ("fsdp", "out", released)
        kind = ("finish", unit.segment, released and released[0], backward)
        return self._do(kind, phase, rows, named, unit.scope if not backward else "")

    def _gathered_bytes(self, name: tuple[int, int]) -> int:
        unit = self._units[name]
        shard = sum(shard_elements(parameter, self._ranks) for parameter in unit.parameters)
        return shard * dtype_bytes(unit.parameters[0].dtype) * self._ranks

    def _turn(self, gathered: tuple[int, int] | None) -> list[Action]:
        """Forward is over: the last gathered buffer comes back."""
        if gathered is None:
            return []

        def rows(rows: Rows) -> None:
            rows.wait("before", _COPY_IN)
            rows.wait("before", _GATHER)
            rows.free("released", rounded(self._gathered_bytes(gathered)))

        named: dict[str, Key] = {"before": ("fsdp", "copied out", gathered), "released": ("fsdp", "out", gathered)}
        return [self._do(("turn", gathered[0]), Phase.FORWARD, rows, named, "")]

    def _release(self, name: tuple[int, int], phase: Phase) -> Action:
        unit = self._units[name]

        def rows(rows: Rows) -> None:
            self._free_parameters(rows, unit)

        named = {f"p{index}": ("fsdp", "parameter", name, index) for index in range(len(unit.parameters))}
        return self._do(("release", unit.segment, phase), phase, rows, named, unit.scope)

    def _free_parameters(self, rows: Rows, unit: Unit) -> None:
        for index, parameter in enumerate(unit.parameters):
            padded = shard_elements(parameter, self._ranks) * self._ranks * dtype_bytes(parameter.dtype)
            rows.free(f"p{index}", rounded(padded))

    def _reduce(self, name: tuple[int, int], runs: list[Run]) -> list[Action]:
        unit = self._units[name]
        shard = sum(shard_elements(parameter, self._ranks) for parameter in unit.parameters)
        made = gradient_keys(self._graph, runs)
        gradients = [(made.get((name, parameter.name)), size(parameter)) for parameter in unit.parameters]
        known = [(key, held) for key, held in gradients if key is not None]
        whole = shard * _MASTER * self._ranks
        table = 8 * -(-shard // 512) + 50 * len(unit.parameters)
        dtype = unit.parameters[0].dtype
        before = self._reduced_before(name)

        def rows(rows: Rows) -> None:
            self._free_parameters(rows, unit)
            if before is not None:
                rows.wait("before", _COMPUTE)
                rows.free("released", rounded(self._gathered_bytes(before) // dtype_bytes(dtype) * _MASTER))
            rows.alloc("in", rounded(whole), Category.TEMPORARY, operator="aten::empty")
            rows.alloc("table", rounded(table), Category.TEMPORARY, operator="aten::empty_strided")
            rows.work("aten::copy_", Copy("h2d", table, pinned=True))
            rows.record("sent", _COMPUTE)
            read = sum(held for _, held in known)
            cat = "aten::_chunk_cat"
            rows.work(cat, Elementwise(read, whole, whole // _MASTER, dtype, len(unit.parameters), cat))
            rows.free("table", rounded(table))
            for index, (_, held) in enumerate(known):
                rows.free(f"g{index}", rounded(held))
            rows.record("packed", _COMPUTE)
            rows.wait("packed", _SCATTER)
            held = rounded(shard * _MASTER)
            rows.alloc("shard", held, Category.GRADIENT, operator="aten::empty", stream=_SCATTER)
            signature = Collective("reduce_scatter", whole, "float32", self._group)
            rows.work("nccl::reduce_scatter", signature, stream=_SCATTER)
            for event in ("ended", "recorded", "scattered", "reduced"):
                rows.record(event, _SCATTER)

        slots = ("in", "table", "sent", "packed", "shard", "ended", "recorded", "scattered", "reduced")
        named: dict[str, Key] = {slot: ("reduce", slot, name) for slot in slots}
        named |= {f"g{index}": key for index, (key, _) in enumerate(known)}
        named |= {f"p{index}": ("fsdp", "parameter", name, index) for index in range(len(unit.parameters))}
        if before is not None:
            named["before"], named["released"] = ("reduce", "scattered", before), ("reduce", "in", before)
        kind = ("reduce", unit.segment, before and before[0], len(known))
        self._last_reduced = name
        return [self._do(kind, Phase.BACKWARD, rows, named, unit.scope)]

    _last_reduced: tuple[int, int] | None = None

    def _reduced_before(self, name: tuple[int, int]) -> tuple[int, int] | None:
        return self._last_reduced

    def _end(self) -> Action:
        last = self._last_reduced

        def rows(rows: Rows) -> None:
            if last is not None:
                rows.wait("reduced", _COMPUTE)
                rows.wait("scattered", _COMPUTE)
                held = self._gathered_bytes(last) // dtype_bytes(self._units[last].parameters[0].dtype) * _MASTER
                rows.free("in", rounded(held))

        named: dict[str, Key] = {slot: ("reduce", slot, last) for slot in ("reduced", "scattered", "in")}
        self._last_reduced = None
        return self._do(("end",), Phase.BACKWARD, rows, named, "")

    def _do(self, kind: object, phase: Phase, fill: object, named: Mapping[str, Key], scope: str) -> Action:
        template = self._templates.get((kind, phase))
        if template is None:
            rows = Rows(self._tables, self._hosts, phase)
            fill(rows)  # type: ignore[operator]
            template = self._templates[kind, phase] = rows.template()
        return Do(template, tuple(named[slot] for slot in template.slots), scope)


def _together(read: int, written: int, numbers: int, dtype: str, count: int) -> Optimizer:
    return Optimizer(read, written, numbers, dtype, count, "aten::_foreach_copy_")
