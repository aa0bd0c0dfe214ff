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

from presim.composition.blocks import rounded
from presim.composition.graph.parameters import elements, size
from presim.composition.graph.schema import Parameter
from presim.composition.rows import Rows
from presim.composition.runtime.buckets import Bucket, Buckets
from presim.composition.runtime.optimizer import Held, parameters
from presim.composition.schedule import Action, Do, Run
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
                (name, one.name),
                self._kept[name, one.name],
                rounded(size(one)),
                True,
                (elements(one),),
                one.dtype,
                experts=bool(self._tag),
            )
            for bucket in self.buckets
            for name, one in bucket.members
        ]

    def setup(self) -> list[Do]:
        """Allocate parameters in the model's type, broadcast them, and allocate the first step's bucket."""
        sizes = [size(one) for unit in self._units.values() for one in unit.parameters]
        rows = Rows(self._tables, self._hosts, Phase.OTHER)
        self._broadcast_parameters(rows)
        rows.alloc("first", rounded(self._whole), Category.OTHER)
        template = rows.template()
        begun = Do(template, tuple(("bucket", slot, *self._tag) for slot in template.slots))
        return [parameters(sizes, self._tables, self._hosts, " ".join(("held", *self._tag))), begun]

    def before_second(self) -> list[Do]:
        """Rebuild buckets in the order of the first backward pass.

        With several micro-batches the first bucket is kept too.
        """
        rows = Rows(self._tables, self._hosts, Phase.FORWARD)
        if not self._last:
            rows.free("first", rounded(self._whole))
        for bucket in self.buckets:
            held = bucket.elements * dtype_bytes(bucket.dtype)
            rows.alloc(str(bucket.number), rounded(held), Category.GRADIENT)
        template = rows.template()
        return [Do(template, tuple(("bucket", slot, *self._tag) for slot in template.slots))]

    def forward(self, runs: Sequence[Run], chunk: int, micro: int) -> list[Action]:
        """The forward pass, preceded once per step by a broadcast of buffers."""
        held = self._graph.buffer_bytes
        if micro or not held or self._tag or chunk != min(self._chunks):
            return list(runs)
        rows = Rows(self._tables, self._hosts, Phase.FORWARD)
        rows.alloc("buffers", rounded(held), Category.TEMPORARY, operator="aten::cat")
        self._broadcast(rows, "sent", held, "float32")
        rows.wait("sent", 0)
        rows.work("aten::copy_", Copy("d2d", held))
        rows.free("buffers", rounded(held))
        return [self._do(rows, {slot: ("bucket", "buffers", slot) for slot in rows.template().slots}), *runs]

    @property
    def _whole(self) -> int:
        return sum(bucket.elements * dtype_bytes(bucket.dtype) for bucket in self.buckets)

    def _sizes(self) -> Iterator[int]:
        """Bytes of each parameter, in the model's order."""
        known = {(one.segment, one.name) for unit in self._units.values() for one in unit.parameters}
        own = [one for one in self._graph.parameters if (one.segment, one.name) in known]
        for segment, group in itertools.groupby(own, lambda one: one.segment):
            count = self._graph.segments[segment].count if segment >= 0 else 1
            yield from [size(one) for one in group] * count

    def _broadcast_parameters(self, rows: Rows) -> None:
        """Broadcast parts of at least 250 MiB, two at a time; a part with several parameters is packed and unpacked."""
        parts: list[list[int]] = [[]]
        for one in self._sizes():
            if sum(parts[-1]) >= _BROADCAST:
                parts.append([])
            parts[-1].append(one)
        dtype = self.buckets[0].dtype if self.buckets else "bfloat16"
        for number, part in enumerate([*parts, [], []]):
            held = sum(part)
            if len(part) > 1:
                rows.alloc(f"part {number}", rounded(held), Category.OTHER, operator="aten::cat")
                count = held // dtype_bytes(dtype)
                rows.work("aten::cat", Elementwise(held, held, count, dtype, len(part), "aten::cat"))
            if part:
                self._broadcast(rows, f"sent {number}", held, dtype)
            before = parts[number - 2] if number > 1 else []
            if before:
                rows.wait(f"sent {number - 2}", 0)
            if len(before) > 1:
                for one in before:
                    rows.work("aten::copy_", Copy("d2d", one))
                rows.free(f"part {number - 2}", rounded(sum(before)))

    def _broadcast(self, rows: Rows, name: str, held: int, dtype: str) -> None:
        rows.record(f"{name}: ready", 0)
        rows.wait(f"{name}: ready", _COLLECTIVE)
        rows.work("nccl::broadcast", Collective("broadcast", held, dtype, self._group), stream=_COLLECTIVE)
        rows.record(name, _COLLECTIVE)

    def _add(self, rows: Rows, one: Parameter, again: bool, last: bool) -> None:
        """Keep the first micro-batch's gradient and add later ones to it; scale the sum into the bucket in the last."""
        count, held = elements(one), size(one)
        if again:
            rows.work("aten::add_", Elementwise(2 * held, held, count, one.dtype, 2, "aten::add_"))
            rows.free(one.name, rounded(held))
        if last:
            rows.work("aten::mul", Elementwise(held, held, count, one.dtype, 1, "aten::mul"))

    def _reduce(self, bucket: Bucket) -> Do:
        rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
        self._collective(rows, "all_reduce", bucket.elements * dtype_bytes(bucket.dtype), bucket.dtype)
        return self._do(rows, {slot: ("bucket", slot, bucket.number) for slot in ("ready", "reduced", "recorded")})

    def _finish(self, bucket: Bucket) -> Do:
        """Copy reduced gradients back from the bucket."""
        rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
        rows.wait("reduced", 0)
        for _, one in bucket.members:
            held = size(one)
            rows.work("aten::copy_", Elementwise(held, held, elements(one), one.dtype, 1, "aten::copy_"))
        return self._do(rows, {"reduced": ("bucket", "reduced", bucket.number)})
