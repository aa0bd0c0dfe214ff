"""Trace entries of FSDP2: gathering and freeing a unit's parameters, and reducing its gradients.

Each method creates one template per unit shape and names its slots. Entries and their order follow captured runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from presim.composition.block_templates import rounded
from presim.composition.entry_templates import Rows, Tables, Template
from presim.composition.graph.graph_schema import Parameter
from presim.composition.graph.parameters import elements
from presim.composition.host_gaps import HostTimes
from presim.composition.schedule import Action, Do, Key
from presim.composition.units import Name, Unit
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Collective, Copy, Elementwise, Optimizer

_COMPUTE, _COPY_IN, _GATHER, _SCATTER, _ALL_REDUCE = 0, 2, 3, 4, 9  # streams, see rows.STREAMS
_MASTER = 4  # bytes of an fp32 element


def shard_elements(parameter: Parameter, ranks: int, experts: bool = False) -> int:
    """Elements of a parameter's shard: split along the first dimension, padded to equal parts.

    If there are fewer experts than ranks, experts are split along their second dimension, as in torchtitan.
    """
    dim = 1 if experts and parameter.shape[0] < ranks else 0
    rows = parameter.shape[dim] if parameter.shape else 1
    return -(-rows // ranks) * (elements(parameter) // max(1, rows))


class Entries:
    """Creates the entries for one group of ranks; equal units share a template."""

    def __init__(
        self,
        units: Mapping[Name, Unit],
        ranks: int,
        group: int,
        tables: Tables,
        hosts: HostTimes,
        replicas: tuple[int, int] = (1, -1),
        experts: tuple[int, int] = (1, -1),
    ) -> None:
        """``experts``: number of ranks that shard the same experts, and their group."""
        self._replicas, self._replica_group = replicas
        self._units = units
        self._sharing = {False: (ranks, group), True: experts}
        self._tables, self._hosts = tables, hosts
        self._templates: dict[object, Template] = {}
        self._reducing: list[Name] = []  # units with packed gradients that are not yet freed

    def ranks(self, unit: Unit) -> int:
        """Number of ranks that shard a unit."""
        return self._sharing[unit.experts][0]

    def shards(self, unit: Unit) -> list[int]:
        """Elements of each parameter's shard."""
        return [shard_elements(parameter, self.ranks(unit), unit.experts) for parameter in unit.parameters]

    def begin(self) -> list[Action]:
        """Make the gather streams wait for the compute stream."""

        def emit_begin(rows: Rows) -> None:
            rows.record("begin", _COMPUTE)
            rows.wait("begin", _COPY_IN)
            rows.wait("begin", _GATHER)

        return [self._do("begin", Phase.FORWARD, emit_begin, {"begin": ("fsdp", "begin")}, "")]

    def gather(self, name: Name, phase: Phase) -> list[Action]:
        """Cast the unit's shard and gather it."""
        unit = self._units[name]
        count = len(unit.parameters)
        shard = sum(self.shards(unit))
        dtype = unit.parameters[0].dtype
        ranks, group = self._sharing[unit.experts]
        local, gathered_bytes = shard * dtype_bytes(dtype), shard * dtype_bytes(dtype) * ranks

        def emit_gather(rows: Rows) -> None:
            rows.alloc("in", rounded(local), Category.TEMPORARY, operator="aten::empty", stream=_COPY_IN)
            if dtype_bytes(dtype) != _MASTER:
                cast = _together(shard * _MASTER, local, shard, dtype, count)
                rows.work(cast.operator, cast, stream=_COPY_IN)
            rows.alloc("out", rounded(gathered_bytes), Category.TEMPORARY, operator="aten::empty", stream=_COPY_IN)
            copy = _together(local, local, shard, dtype, count)
            rows.work(copy.operator, copy, stream=_COPY_IN)
            rows.record("copied", _COPY_IN)
            rows.wait("copied", _GATHER)
            if ranks > 1:
                rows.work("nccl::all_gather", Collective("all_gather", gathered_bytes, dtype, group), stream=_GATHER)
            for event in ("ended", "recorded", "gathered"):
                rows.record(event, _GATHER)
            rows.free("in", rounded(local))

        named = {slot: ("fsdp", slot, name) for slot in ("in", "out", "copied", "ended", "recorded", "gathered")}
        return [
            self._do(("gather", unit.kind), phase, emit_gather, named, unit.scope if phase is Phase.FORWARD else "")
        ]

    def finish(self, name: Name, phase: Phase, released: Name | None) -> Action:
        """Copy out gathered parameters, and free the gather buffer of `released`.

        This unit's or the previous unit's.
        """
        unit = self._units[name]
        shard = sum(self.shards(unit))
        dtype = unit.parameters[0].dtype
        gathered_bytes = shard * dtype_bytes(dtype) * self.ranks(unit)
        table = 8 * min(4096, -(-shard * dtype_bytes(dtype) // 14336)) + 8 * len(unit.parameters)
        backward = phase is Phase.BACKWARD

        def emit_copy_out(rows: Rows) -> None:
            if not backward and released is not None:
                rows.wait("before", _COPY_IN)
                rows.wait("before", _GATHER)
            rows.wait("gathered", _COMPUTE)
            for index, padded in enumerate(self._padded(unit)):
                rows.alloc(f"p{index}", rounded(padded), Category.PARAMETER, operator="FSDP::all_gather_copy_out")
            rows.alloc("table", rounded(table), Category.TEMPORARY, operator="aten::empty_strided")
            rows.work("aten::copy_", Copy("h2d", table, pinned=True))
            rows.record("sent", _COMPUTE)
            split = "aten::split_with_sizes_copy"
            rows.work(
                split,
                Elementwise(
                    gathered_bytes, gathered_bytes, gathered_bytes // dtype_bytes(dtype), dtype, operator=split
                ),
            )
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
        kind = ("finish", unit.kind, released and self._units[released].kind, backward)
        return self._do(kind, phase, emit_copy_out, named, unit.scope if not backward else "")

    def _gathered_bytes(self, name: Name) -> int:
        unit = self._units[name]
        shard = sum(self.shards(unit))
        return shard * dtype_bytes(unit.parameters[0].dtype) * self.ranks(unit)

    def _reduced_bytes(self, unit: Unit) -> int:
        """Bytes of a unit's gradients in fp32, before they are reduced to a shard."""
        return sum(self.shards(unit)) * _MASTER * self.ranks(unit)

    def turn(self, gathered: Name | None) -> list[Action]:
        """Free the last gather buffer at the end of the forward pass."""
        if gathered is None:
            return []

        def emit_turn(rows: Rows) -> None:
            rows.wait("before", _COPY_IN)
            rows.wait("before", _GATHER)
            rows.free("released", rounded(self._gathered_bytes(gathered)))

        named: dict[str, Key] = {"before": ("fsdp", "copied out", gathered), "released": ("fsdp", "out", gathered)}
        return [self._do(("turn", self._units[gathered].kind), Phase.FORWARD, emit_turn, named, "")]

    def release(self, name: Name, phase: Phase) -> Action:
        """Free the unit's parameters."""
        unit = self._units[name]

        def emit_release(rows: Rows) -> None:
            self._free_parameters(rows, unit)

        named = {f"p{index}": ("fsdp", "parameter", name, index) for index in range(len(unit.parameters))}
        return self._do(("release", unit.kind, phase), phase, emit_release, named, unit.scope)

    def _padded(self, unit: Unit) -> list[int]:
        """Bytes of each gathered parameter."""
        ranks = self.ranks(unit)
        return [
            shard * ranks * dtype_bytes(parameter.dtype) for parameter, shard in zip(unit.parameters, self.shards(unit))
        ]

    def _free_parameters(self, rows: Rows, unit: Unit) -> None:
        for index, padded in enumerate(self._padded(unit)):
            rows.free(f"p{index}", rounded(padded))

    def reduce(
        self, name: Name, gradients: list[tuple[Key, int]], dtype: str, micro: int = 0, *, waits: bool = True
    ) -> list[Action]:
        """Free the unit's parameters and reduce its gradients (memory block and bytes of each) to a shard.

        From the second micro-batch on, the shard is added to the first one. ``waits``: wait for the reductions of
        earlier units; in a block with several units, only the first one waits (``_fsdp_param_group.post_backward``).
        """
        unit = self._units[name]
        before = tuple(self._reducing) if waits else ()

        def emit_reduction(rows: Rows) -> None:
            self._free_parameters(rows, unit)
            for index, unit_name in enumerate(before):
                rows.wait(f"before{index}", _COMPUTE)
                rows.free(f"released{index}", rounded(self._reduced_bytes(self._units[unit_name])))
            self._pack(rows, unit, [gradient_bytes for _, gradient_bytes in gradients], dtype)
            last = self._scatter(rows, unit)
            if micro:
                self._accumulate(rows, unit, last)
            if gradients:  # foreach_reduce's loop holds the last gradient until it returns
                rows.free(f"g{len(gradients) - 1}", rounded(gradients[-1][1]))
            if last == _SCATTER:
                rows.record("scattered", _SCATTER)
            rows.record("reduced", last)

        named = self._reduction_keys(name, [key for key, _ in gradients], before, accumulates=micro > 0)
        kinds = tuple(self._units[unit_name].kind for unit_name in before)
        kind = ("reduce", unit.kind, kinds, len(gradients), dtype, micro > 0)
        self._reducing = [*(() if waits else self._reducing), name]
        return [self._do(kind, Phase.BACKWARD, emit_reduction, named, unit.scope)]

    def _pack(self, rows: Rows, unit: Unit, gradients: list[int], dtype: str) -> None:
        """Copy a unit's gradients, of so many bytes each, into the input of its reduction; the last one stays."""
        reduced_bytes = self._reduced_bytes(unit)
        table = 8 * -(-sum(self.shards(unit)) // 512) + 50 * len(unit.parameters)
        rows.alloc("in", rounded(reduced_bytes), Category.TEMPORARY, operator="aten::empty")
        rows.alloc("table", rounded(table), Category.TEMPORARY, operator="aten::empty_strided")
        rows.work("aten::copy_", Copy("h2d", table, pinned=True))
        rows.record("sent", _COMPUTE)
        cat = "aten::_chunk_cat"
        rows.work(
            cat, Elementwise(sum(gradients), reduced_bytes, reduced_bytes // _MASTER, dtype, len(unit.parameters), cat)
        )
        rows.free("table", rounded(table))
        for index, size in enumerate(gradients[:-1]):
            rows.free(f"g{index}", rounded(size))
        rows.record("packed", _COMPUTE)

    def _scatter(self, rows: Rows, unit: Unit) -> int:
        """Reduce packed gradients to a shard, under HSDP over the replicas too; returns the stream that ends last."""
        ranks, group = self._sharing[unit.experts]
        shard_bytes = sum(self.shards(unit)) * _MASTER
        rows.wait("packed", _SCATTER)
        rows.alloc("shard", rounded(shard_bytes), Category.GRADIENT, operator="aten::empty", stream=_SCATTER)
        if ranks > 1:
            signature = Collective("reduce_scatter", self._reduced_bytes(unit), "float32", group)
            rows.work("nccl::reduce_scatter", signature, stream=_SCATTER)
        for event in ("ended", "recorded"):
            rows.record(event, _SCATTER)
        if self._replicas <= 1:
            return _SCATTER
        rows.record("scattered", _SCATTER)
        rows.wait("scattered", _ALL_REDUCE)
        reduced = Collective("all_reduce", shard_bytes, "float32", self._replica_group)
        rows.work("nccl::all_reduce", reduced, stream=_ALL_REDUCE)
        return _ALL_REDUCE

    def _accumulate(self, rows: Rows, unit: Unit, stream: int) -> None:
        """Add a reduced shard to that of the earlier micro-batches."""
        parts = self.shards(unit)
        for part in parts:
            add = Elementwise(2 * part * _MASTER, part * _MASTER, part, "float32", 2, "aten::add_")
            rows.work("aten::add_", add, stream=stream)
        rows.free("shard", rounded(sum(parts) * _MASTER))

    def _reduction_keys(
        self, name: Name, gradients: list[Key], before: tuple[Name, ...], *, accumulates: bool
    ) -> dict[str, Key]:
        """Memory blocks and events of a reduction; ``accumulates``: the shard is added to an earlier micro-batch's."""
        slots = ("in", "table", "sent", "packed", "shard", "ended", "recorded", "scattered", "reduced")
        named: dict[str, Key] = {slot: ("reduce", slot, name) for slot in slots}
        if accumulates:
            named["shard"] = ("reduce", "again", name)
        named |= {f"g{index}": key for index, key in enumerate(gradients)}
        named |= {f"p{index}": ("fsdp", "parameter", name, index) for index in range(len(self._units[name].parameters))}
        for index, unit_name in enumerate(before):
            named[f"before{index}"], named[f"released{index}"] = (
                ("reduce", "scattered", unit_name),
                ("reduce", "in", unit_name),
            )
        return named

    def end(self) -> Action:
        """Make the compute stream wait for the last reduction."""
        pending_units = tuple(self._reducing)

        def emit_end(rows: Rows) -> None:
            for index, unit_name in enumerate(pending_units):
                rows.wait(f"reduced{index}", _COMPUTE)
                rows.wait(f"scattered{index}", _COMPUTE)
                rows.free(f"in{index}", rounded(self._reduced_bytes(self._units[unit_name])))

        slots = ("reduced", "scattered", "in")
        named: dict[str, Key] = {
            f"{slot}{index}": ("reduce", slot, unit_name)
            for index, unit_name in enumerate(pending_units)
            for slot in slots
        }
        self._reducing = []
        return self._do(
            ("end", tuple(self._units[unit_name].kind for unit_name in pending_units)),
            Phase.BACKWARD,
            emit_end,
            named,
            "",
        )

    def _do(self, kind: object, phase: Phase, fill: object, named: Mapping[str, Key], scope: str) -> Action:
        template = self._templates.get((kind, phase))
        if template is None:
            rows = Rows(self._tables, self._hosts, phase)
            fill(rows)  # type: ignore[operator]
            template = self._templates[kind, phase] = rows.template()
        return Do(template, tuple(named[slot] for slot in template.slots), scope)


def _together(read: int, written: int, numbers: int, dtype: str, count: int) -> Optimizer:
    return Optimizer(read, written, numbers, dtype, count, "aten::_foreach_copy_")
