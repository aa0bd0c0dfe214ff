"""Megatron's DistributedDataParallel with its distributed optimizer (ZeRO-1).

Gradients are accumulated in one fp32 buffer, by the matrix products themselves if the model fuses this. Buckets (40
million elements, or one million per rank if that is more) are reduce-scattered. Each rank updates a shard in fp32, and
parameters are gathered for the next forward pass.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Sequence

from presim.composition.block_templates import rounded
from presim.composition.entry_templates import Rows
from presim.composition.graph.graph_schema import Parameter
from presim.composition.graph.parameters import elements, size
from presim.composition.runtime.buckets import STREAM as _STREAM
from presim.composition.runtime.buckets import Bucket, Buckets
from presim.composition.runtime.optimizer import Held, parameters
from presim.composition.schedule import Action, BlockRun, Do
from presim.composition.units import Name, unit_of
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Collective, Elementwise, Optimizer

_FP32 = 4
_LEAST, _FOR_EACH_RANK = 40_000_000, 1_000_000  # elements (megatron/core/distributed)


class Zero1(Buckets):
    """Megatron's DistributedDataParallel with its distributed optimizer."""

    def _ordered(self, complete: Collection[tuple[Name, str]]) -> list[tuple[Name, str]]:
        """Parameters in reverse of the model's order."""
        listed: list[tuple[Name, str]] = []
        for segment, group in itertools.groupby(self._graph.parameters, lambda parameter: parameter.segment):
            names = [parameter.name for parameter in group]
            blocks = range(self._graph.segments[segment].count) if segment >= 0 else sorted(self._chunks)
            listed += [((segment, block), name) for block in blocks for name in names]
        complete_names = [gradient_name for gradient_name in reversed(listed) if gradient_name in complete]
        return sorted(complete_names, key=lambda gradient_name: -self._chunk_of[gradient_name[0]])

    def _capacity(self, name: Name, number: int, dtype: str) -> int:
        """Bucket size.

        Only the first chunk of a pipeline's first stage splits into buckets (megatron/core/distributed).
        """
        has_buckets = self._overlap and not self._stage and not self._chunk_of[name]
        return max(_LEAST, _FOR_EACH_RANK * self._ranks) if has_buckets else 1 << 62

    def _parts(self, before: Name, name: Name) -> bool:
        """Whether two units belong to different chunks, which have separate buffers."""
        return self._chunk_of[before] != self._chunk_of[name]

    @property
    def _numbers(self) -> int:
        return sum(bucket.elements for bucket in self.buckets)

    def held(self) -> list[Held]:
        """This rank's shard of the gradient buffer, in fp32."""
        tensors = sum(len(bucket.members) for bucket in self.buckets)
        share = -(-self._numbers // self._ranks)
        count = max(1, -(-tensors // self._ranks))
        parts = tuple(share // count + (index < share % count) for index in range(count))
        gradient = ("buffer", "gradients", *self._tag)
        return [Held(("shard", *self._tag), gradient, 0, False, parts, experts=bool(self._tag))]

    def end(self) -> list[Action]:
        """Wait for reductions; with sequence parallelism, all-reduce gradients of norms over its ranks."""
        actions = super().end()
        norms = [parameter for bucket in self.buckets for _, parameter in bucket.members if len(parameter.shape) == 1]
        if self._sequence_group < 0 or not norms:
            return actions
        rows = Rows(self._tables, self._hosts, Phase.OTHER)
        count = sum(elements(parameter) for parameter in norms)
        norm_bytes = count * _FP32
        rows.alloc("norms", rounded(norm_bytes), Category.TEMPORARY, operator="aten::cat")
        rows.work("aten::cat", Elementwise(norm_bytes, norm_bytes, count, "float32", len(norms), "aten::cat"))
        signature = Collective("all_reduce", norm_bytes, "float32", self._sequence_group)
        rows.work("nccl::all_reduce", signature)
        for parameter in norms:
            part = elements(parameter) * _FP32
            rows.work("aten::copy_", Elementwise(part, part, elements(parameter), "float32", 1, "aten::copy_"))
        rows.free("norms", rounded(norm_bytes))
        return [*actions, self._do(rows, {"norms": ("norms", "gradients")})]

    def setup(self) -> list[Do]:
        """Allocate the parameter buffer, the fp32 gradient buffer, and this rank's fp32 parameter shard."""
        rows = Rows(self._tables, self._hosts, Phase.OTHER)
        parameter_bytes = sum(size(parameter) for bucket in self.buckets for _, parameter in bucket.members)
        rows.alloc("parameters", rounded(parameter_bytes), Category.PARAMETER)
        rows.alloc("gradients", rounded(self._numbers * _FP32), Category.GRADIENT)
        template = rows.template()
        buffers = Do(template, tuple(("buffer", slot, *self._tag) for slot in template.slots))
        if self._on_host:
            return [buffers]
        shards = [part * _FP32 for tensor in self.held() for part in tensor.shards]
        return [buffers, parameters(shards, self._tables, self._hosts, " ".join(("main", *self._tag)))]

    def forward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """Forward pass: zero the gradient buffer first, and wait for gathered parameters before their first use."""
        actions: list[Action] = []
        if micro == 0 and chunk == min(self._chunks):
            rows = Rows(self._tables, self._hosts, Phase.OTHER)
            buffer_bytes = self._numbers * _FP32
            rows.work("aten::fill_", Elementwise(0, buffer_bytes, self._numbers, "float32", 1, "aten::fill_"))
            actions.append(self._do(rows, {}))
        if micro or not self._overlap:
            return [*actions, *runs]
        waited: set[int] = set()
        for run in runs:
            name = unit_of(self._graph, run)
            for parameter in self._units[name].parameters if name in self._units else ():
                bucket = self._of.get((name, parameter.name))
                if bucket is not None and bucket.number not in waited:
                    waited.add(bucket.number)
                    rows = Rows(self._tables, self._hosts, Phase.FORWARD)
                    rows.wait("gathered", 0)
                    actions.append(self._do(rows, {"gathered": ("bucket", "gathered", bucket.number)}))
            actions.append(run)
        return actions

    def update(self) -> list[Do]:
        """Updated shards are cast to the model's type, where the GPU has them."""
        if self._on_host:
            return []
        (tensor,) = self.held()
        rows = Rows(self._tables, self._hosts, Phase.OPTIMIZER)
        dtype = self.buckets[0].dtype
        size = tensor.elements * dtype_bytes(dtype)
        rows.work(
            "aten::_foreach_copy_",
            Optimizer(tensor.elements * _FP32, size, tensor.elements, dtype, tensor.tensors, "aten::_foreach_copy_"),
        )
        return [self._do(rows, {})]

    def after_update(self) -> list[Action]:
        """Gather parameters, in the order that the forward pass needs them."""
        actions: list[Action] = []
        for bucket in reversed(self.buckets):
            rows = Rows(self._tables, self._hosts, Phase.FORWARD if self._overlap else Phase.OTHER)
            rows.record("ready", 0)
            rows.wait("ready", _STREAM)
            gathered_bytes = self._padded(bucket) * dtype_bytes(bucket.dtype)
            rows.work(
                "nccl::all_gather", Collective("all_gather", gathered_bytes, bucket.dtype, self._group), stream=_STREAM
            )
            rows.record("gathered", _STREAM)
            if not self._overlap:
                rows.wait("gathered", 0)
            actions.append(self._do(rows, {slot: ("bucket", slot, bucket.number) for slot in ("ready", "gathered")}))
        return actions

    def _padded(self, bucket: Bucket) -> int:
        return -(-bucket.elements // self._ranks) * self._ranks

    def _add(self, rows: Rows, parameter: Parameter, accumulates: bool, last: bool) -> None:
        """Add a gradient to the fp32 buffer, unless its matrix product already did."""
        count, gradient_bytes = elements(parameter), size(parameter)
        buffer_bytes = count * _FP32
        if (parameter.segment, parameter.name) not in self._placed:
            add = Elementwise(
                gradient_bytes + buffer_bytes,
                buffer_bytes,
                count,
                "float32",
                2,
                "aten::add_",
                cast_operands=3 if parameter.dtype != "float32" else 0,
            )
            rows.work("aten::add_", add)
        rows.free(parameter.name, rounded(gradient_bytes))

    @functools.cached_property
    def _placed(self) -> set[tuple[int, str]]:
        """(segment, parameter) of gradients that matrix products accumulate in the buffer directly."""
        fused_gradients = set()
        for segment in self._graph.segments:
            empty = {node.outputs[0].value for node in segment.nodes if node.operator in ("aten::empty", "aten::zeros")}
            home = segment.twin if segment.name else -1
            fused_gradients |= {(home, name) for name, index in segment.gradients.items() if index in empty}
        return fused_gradients

    def _reduce(self, bucket: Bucket) -> Do:
        rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
        count = self._padded(bucket)
        scale = Elementwise(count * _FP32, count * _FP32, count, "float32", 1, "aten::mul_")
        rows.work("aten::mul_", scale)
        self._collective(rows, "reduce_scatter", count * _FP32, "float32")
        return self._do(rows, {slot: ("bucket", slot, bucket.number) for slot in ("ready", "reduced", "recorded")})
