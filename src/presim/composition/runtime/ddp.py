"""PyTorch's DistributedDataParallel: full parameters on every rank, gradients all-reduced in buckets.

Each gradient is scaled into its bucket (25 MiB, the first 1 MiB), which is all-reduced and copied back; parameters,
gradients and optimizer states are of the model's type. Before the first step rank 0's parameters are broadcast, and
the first step has one bucket for all gradients, because buckets follow the order in which that step completes them
(torch/nn/parallel/distributed.py and torch/csrc/distributed/c10d/reducer.cpp). Buffers are broadcast in each step's
first forward pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from presim.composition.block_templates import rounded
from presim.composition.entry_templates import Rows
from presim.composition.graph.graph_schema import Parameter
from presim.composition.graph.parameters import elements, size
from presim.composition.runtime.buckets import Bucket, Buckets
from presim.composition.runtime.optimizer import Held, parameters
from presim.composition.schedule import Action, BlockRun, Do
from presim.composition.units import Name
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Collective, Copy, Elementwise

_FIRST, _BUCKET = 1 << 20, 25 << 20  # bytes
_BROADCAST = 250 << 20  # bytes of one broadcast part; two parts at a time
_COLLECTIVE = 1  # stream, see rows.STREAMS


class Ddp(Buckets):
    """`torch.nn.parallel.DistributedDataParallel`."""

    def _capacity(self, name: Name, number: int, dtype: str) -> int:
        return (_BUCKET if number else _FIRST) // dtype_bytes(dtype)

    def held(self) -> list[Held]:
        """Full gradients in the model's type."""
        return [
            Held(
                (name, parameter.name),
                self._kept[name, parameter.name],
                rounded(size(parameter)),
                True,
                (elements(parameter),),
                parameter.dtype,
                experts=bool(self._tag),
            )
            for bucket in self.buckets
            for name, parameter in bucket.members
        ]

    def setup(self) -> list[Do]:
        """Allocate parameters in the model's type, broadcast them, and allocate the first step's bucket."""
        sizes = [size(parameter) for unit in self._units.values() for parameter in unit.parameters]
        rows = Rows(self._tables, self._hosts, Phase.OTHER)
        self._broadcast_parameters(rows)
        rows.alloc("first", rounded(self._total_bytes), Category.OTHER)
        template = rows.template()
        begun = Do(template, tuple(("bucket", slot, *self._tag) for slot in template.slots))
        return [parameters(sizes, self._tables, self._hosts, " ".join(("held", *self._tag))), begun]

    def before_second(self) -> list[Do]:
        """Rebuild buckets in the order of the first backward pass.

        With several micro-batches the first bucket is kept too.
        """
        rows = Rows(self._tables, self._hosts, Phase.FORWARD)
        if not self._last:
            rows.free("first", rounded(self._total_bytes))
        for bucket in self.buckets:
            bucket_bytes = bucket.elements * dtype_bytes(bucket.dtype)
            rows.alloc(str(bucket.number), rounded(bucket_bytes), Category.GRADIENT)
        template = rows.template()
        return [Do(template, tuple(("bucket", slot, *self._tag) for slot in template.slots))]

    def forward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """The forward pass, preceded once per step by a broadcast of buffers."""
        buffer_bytes = self._graph.buffer_bytes
        if micro or not buffer_bytes or self._tag or chunk != min(self._chunks):
            return list(runs)
        rows = Rows(self._tables, self._hosts, Phase.FORWARD)
        rows.alloc("buffers", rounded(buffer_bytes), Category.TEMPORARY, operator="aten::cat")
        self._broadcast(rows, "sent", buffer_bytes, "float32")
        rows.wait("sent", 0)
        rows.work("aten::copy_", Copy("d2d", buffer_bytes))
        rows.free("buffers", rounded(buffer_bytes))
        return [self._do(rows, {slot: ("bucket", "buffers", slot) for slot in rows.template().slots}), *runs]

    @property
    def _total_bytes(self) -> int:
        return sum(bucket.elements * dtype_bytes(bucket.dtype) for bucket in self.buckets)

    def _sizes(self) -> Iterator[int]:
        """Bytes of each parameter, in the model's order."""
        parameter_names = {
            (parameter.segment, parameter.name) for unit in self._units.values() for parameter in unit.parameters
        }
        unit_parameters = [
            parameter for parameter in self._graph.parameters if (parameter.segment, parameter.name) in parameter_names
        ]
        for segment, group in itertools.groupby(unit_parameters, lambda parameter: parameter.segment):
            count = self._graph.segments[segment].count if segment >= 0 else 1
            yield from [size(parameter) for parameter in group] * count

    def _broadcast_parameters(self, rows: Rows) -> None:
        """Broadcast parts of at least 250 MiB, two at a time; a part with several parameters is packed and unpacked."""
        parts: list[list[int]] = [[]]
        for parameter_bytes in self._sizes():
            if sum(parts[-1]) >= _BROADCAST:
                parts.append([])
            parts[-1].append(parameter_bytes)
        dtype = self.buckets[0].dtype if self.buckets else "bfloat16"
        for number, part in enumerate([*parts, [], []]):
            part_bytes = sum(part)
            if len(part) > 1:
                rows.alloc(f"part {number}", rounded(part_bytes), Category.OTHER, operator="aten::cat")
                count = part_bytes // dtype_bytes(dtype)
                rows.work("aten::cat", Elementwise(part_bytes, part_bytes, count, dtype, len(part), "aten::cat"))
            if part:
                self._broadcast(rows, f"sent {number}", part_bytes, dtype)
            before = parts[number - 2] if number > 1 else []
            if before:
                rows.wait(f"sent {number - 2}", 0)
            if len(before) > 1:
                for parameter_bytes in before:
                    rows.work("aten::copy_", Copy("d2d", parameter_bytes))
                rows.free(f"part {number - 2}", rounded(sum(before)))

    def _broadcast(self, rows: Rows, name: str, message_bytes: int, dtype: str) -> None:
        rows.record(f"{name}: ready", 0)
        rows.wait(f"{name}: ready", _COLLECTIVE)
        rows.work("nccl::broadcast", Collective("broadcast", message_bytes, dtype, self._group), stream=_COLLECTIVE)
        rows.record(name, _COLLECTIVE)

    def _add(self, rows: Rows, parameter: Parameter, accumulates: bool, last: bool) -> None:
        """Keep the first micro-batch's gradient and add later ones to it; scale the sum into the bucket in the last."""
        count, gradient_bytes = elements(parameter), size(parameter)
        if accumulates:
            rows.work(
                "aten::add_", Elementwise(2 * gradient_bytes, gradient_bytes, count, parameter.dtype, 2, "aten::add_")
            )
            rows.free(parameter.name, rounded(gradient_bytes))
        if last:
            rows.work("aten::mul", Elementwise(gradient_bytes, gradient_bytes, count, parameter.dtype, 1, "aten::mul"))

    def _reduce(self, bucket: Bucket) -> Do:
        rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
        self._collective(rows, "all_reduce", bucket.elements * dtype_bytes(bucket.dtype), bucket.dtype)
        return self._do(rows, {slot: ("bucket", slot, bucket.number) for slot in ("ready", "reduced", "recorded")})

    def _finish(self, bucket: Bucket) -> Do:
        """Copy reduced gradients back from the bucket."""
        rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
        rows.wait("reduced", 0)
        for _, parameter in bucket.members:
            gradient_bytes = size(parameter)
            rows.work(
                "aten::copy_",
                Elementwise(gradient_bytes, gradient_bytes, elements(parameter), parameter.dtype, 1, "aten::copy_"),
            )
        return self._do(rows, {"reduced": ("bucket", "reduced", bucket.number)})
