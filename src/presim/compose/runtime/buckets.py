"""Data parallelism with whole parameters on every rank: PyTorch's DDP, and Megatron's distributed optimizer (ZeRO-1).

Gradients are reduced in buckets in the order in which backward completes them, on a stream of their own, in the
backward pass of the last micro-batch. **DDP** scales each gradient into its bucket (25 MiB, the first 1 MiB),
all-reduces it, and copies it back; parameters, gradients and optimizer states are of the model's type. **ZeRO-1** adds
gradients up in fp32 in one buffer, reduce-scatters its buckets (40 million numbers, or a million for each rank where
that is more), updates a shard in fp32, and gathers parameters for the next forward pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from presim.compose.blocks import rounded
from presim.compose.hosts import HostTimes
from presim.compose.rows import Rows, Tables, Template
from presim.compose.runtime.optimizer import Held, parameters
from presim.compose.schedule import Action, Do, Key, Run
from presim.compose.units import Name, Unit, gradient_keys, unit_of
from presim.graph.parameters import elements, size
from presim.graph.schema import OperatorGraph, Parameter
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Collective, Elementwise, Optimizer

_STREAM = 8  # of data parallelism, see rows.STREAMS
_FP32 = 4
_FIRST, _BUCKET = 1 << 20, 25 << 20  # bytes (torch/nn/parallel/distributed.py)
_LEAST, _FOR_EACH_RANK = 40_000_000, 1_000_000  # numbers (megatron/core/distributed)


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together."""

    number: int
    members: tuple[tuple[Name, Parameter], ...]

    @property
    def elements(self) -> int:
        """Numbers in all of them."""
        return sum(elements(parameter) for _, parameter in self.members)

    @property
    def dtype(self) -> str:
        """Of its parameters."""
        return self.members[0][1].dtype


class Buckets:
    """What both flavours share: which gradients are reduced together, and when they are complete."""

    def __init__(
        self,
        graph: OperatorGraph,
        units: Sequence[Unit],
        runs: Sequence[Run],
        ranks: int,
        group: int,
        tables: Tables,
        hosts: HostTimes,
        *,
        micros: int,
        overlap: bool,
    ) -> None:
        """``runs``: all backward passes of a micro-batch, in order."""
        self._graph, self._ranks, self._group = graph, ranks, group
        self._tables, self._hosts, self._overlap = tables, hosts, overlap
        self._last = micros - 1
        self._chunks = {run.chunk for run in runs}
        self._units = {unit.name: unit for unit in units}
        known = {(unit.name, one.name): one for unit in units for one in unit.parameters}
        order = [(place, known[place]) for place in gradient_keys(graph, runs) if place in known]
        self.buckets = self._made([(place[0], parameter) for place, parameter in order])
        self._of = {(name, one.name): bucket for bucket in self.buckets for name, one in bucket.members}
        self._left: dict[int, int] = {}  # bucket -> gradients that are still to come
        self._kept: dict[tuple[Name, str], Key] = {}  # the first micro-batch's gradients
        self._gradients: dict[Run, dict[tuple[Name, str], Key]] = {}  # by run of the first micro-batch
        self._adds: dict[object, Template] = {}

    def _capacity(self, number: int, dtype: str) -> int:
        """Numbers after which a bucket is full."""
        raise NotImplementedError

    def _made(self, order: Sequence[tuple[Name, Parameter]]) -> list[Bucket]:
        found: list[Bucket] = []
        members: list[tuple[Name, Parameter]] = []
        held = 0
        for name, parameter in order:
            members.append((name, parameter))
            held += elements(parameter)
            if held >= self._capacity(len(found), parameter.dtype):
                found.append(Bucket(len(found), tuple(members)))
                members, held = [], 0
        return [*found, Bucket(len(found), tuple(members))] if members else found

    def forward(self, runs: Sequence[Run], chunk: int, micro: int) -> list[Action]:
        """Nothing is added."""
        return list(runs)

    def backward(self, runs: Sequence[Run], chunk: int, micro: int) -> list[Action]:
        """Gradients are added up, and reduced where they are the last."""
        actions: list[Action] = []
        for run in runs:
            actions.append(run)
            made = self._made_by(run)
            if not made:
                continue
            actions.append(self._added(unit_of(self._graph, run), made, micro))
            if micro == self._last:
                actions += self._complete(list(made))
        return actions

    def _made_by(self, run: Run) -> dict[tuple[Name, str], Key]:
        """The gradients that a run makes, which are looked up in the first micro-batch only."""
        first = dataclasses.replace(run, micro=0)
        if first not in self._gradients:
            self._gradients[first] = gradient_keys(self._graph, [first])
        return {name: (run.micro, *key[1:]) for name, key in self._gradients[first].items()}

    def _added(self, name: Name, made: dict[tuple[Name, str], Key], micro: int) -> Do:
        """Gradients of one unit are added up; equal units share a template."""
        unit = self._units[name]
        known = {one.name: one for one in unit.parameters}
        own = {parameter: key for (_, parameter), key in made.items() if parameter in known}
        kind = (unit.kind, tuple(own), micro > 0, micro == self._last)
        if kind not in self._adds:
            rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
            for parameter in own:
                self._add(rows, known[parameter], kind[2], kind[3])
            self._adds[kind] = rows.template()
        if not micro:
            self._kept.update({(name, parameter): key for parameter, key in own.items()})
        template = self._adds[kind]
        return Do(template, tuple(own[slot] for slot in template.slots), unit.scope)

    def _complete(self, made: Sequence[tuple[Name, str]]) -> list[Action]:
        actions: list[Action] = []
        for place in made:
            bucket = self._of.get(place)
            if bucket is None:
                continue
            left = self._left.get(bucket.number, len(bucket.members)) - 1
            self._left[bucket.number] = left
            if not left and self._overlap:
                actions.append(self._reduce(bucket))
        return actions

    def end(self) -> list[Action]:
        """The compute stream waits for what is being reduced."""
        self._left.clear()
        actions: list[Action] = [] if self._overlap else [self._reduce(bucket) for bucket in self.buckets]
        return [*actions, *(self._finish(bucket) for bucket in self.buckets)]

    def update(self) -> list[Do]:
        """Nothing is added to the optimizer's step."""
        return []

    def after_update(self) -> list[Action]:
        """Nothing is left to do."""
        return []

    def _add(self, rows: Rows, one: Parameter, again: bool, last: bool) -> None:
        """One gradient; its slot has the parameter's name. ``again``, ``last``: not the first, the last micro-batch."""
        raise NotImplementedError

    def _reduce(self, bucket: Bucket) -> Do:
        raise NotImplementedError

    def _finish(self, bucket: Bucket) -> Do:
        rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
        rows.wait("reduced", 0)
        return self._do(rows, {"reduced": ("bucket", "reduced", bucket.number)})

    def _collective(self, rows: Rows, kind: str, size: int, dtype: str) -> None:
        """On the stream of data parallelism, once what was computed is there."""
        rows.record("ready", 0)
        rows.wait("ready", _STREAM)
        rows.work(f"nccl::{kind}", Collective(kind, size, dtype, self._group), stream=_STREAM)
        for event in ("reduced", "recorded"):
            rows.record(event, _STREAM)

    def _do(self, rows: Rows, named: dict[str, Key], scope: str = "") -> Do:
        template = rows.template()
        return Do(template, tuple(named[slot] for slot in template.slots), scope)


class Ddp(Buckets):
    """`torch.nn.parallel.DistributedDataParallel`."""

    def _capacity(self, number: int, dtype: str) -> int:
        return (_BUCKET if number else _FIRST) // dtype_bytes(dtype)

    def held(self) -> list[Held]:
        """Whole gradients of the model's type."""
        return [
            Held((name, one.name), self._kept[name, one.name], rounded(size(one)), True, (elements(one),), one.dtype)
            for bucket in self.buckets
            for name, one in bucket.members
        ]

    def setup(self) -> list[Do]:
        """Parameters of the model's type, and buckets."""
        sizes = [size(one) for unit in self._units.values() for one in unit.parameters]
        rows = Rows(self._tables, self._hosts, Phase.OTHER)
        for bucket in self.buckets:
            held = bucket.elements * dtype_bytes(bucket.dtype)
            rows.alloc(str(bucket.number), rounded(held), Category.GRADIENT)
        template = rows.template()
        buckets = Do(template, tuple(("bucket", slot) for slot in template.slots))
        return [parameters(sizes, self._tables, self._hosts), buckets]

    def _add(self, rows: Rows, one: Parameter, again: bool, last: bool) -> None:
        """The first micro-batch's gradients stay, others are added to them; the last are scaled into buckets."""
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
        """What was reduced is copied back to the gradients."""
        rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
        rows.wait("reduced", 0)
        for _, one in bucket.members:
            held = size(one)
            rows.work("aten::copy_", Elementwise(held, held, elements(one), one.dtype, 1, "aten::copy_"))
        return self._do(rows, {"reduced": ("bucket", "reduced", bucket.number)})


class Zero1(Buckets):
    """Megatron's DistributedDataParallel with its distributed optimizer."""

    def _capacity(self, number: int, dtype: str) -> int:
        return max(_LEAST, _FOR_EACH_RANK * self._ranks) if self._overlap else 1 << 62

    @property
    def _numbers(self) -> int:
        return sum(bucket.elements for bucket in self.buckets)

    def held(self) -> list[Held]:
        """A shard of the buffer of gradients, in fp32."""
        tensors = sum(len(bucket.members) for bucket in self.buckets)
        share = -(-self._numbers // self._ranks)
        count = max(1, -(-tensors // self._ranks))
        parts = tuple(share // count + (index < share % count) for index in range(count))
        return [Held("shard", ("buffer", "gradients"), 0, False, parts)]

    def setup(self) -> list[Do]:
        """Parameters in one buffer, gradients in fp32 in another, and this rank's shard of parameters in fp32."""
        rows = Rows(self._tables, self._hosts, Phase.OTHER)
        whole = sum(size(one) for bucket in self.buckets for _, one in bucket.members)
        rows.alloc("parameters", rounded(whole), Category.PARAMETER)
        rows.alloc("gradients", rounded(self._numbers * _FP32), Category.GRADIENT)
        template = rows.template()
        buffers = Do(template, tuple(("buffer", slot) for slot in template.slots))
        shards = [part * _FP32 for one in self.held() for part in one.shards]
        return [buffers, parameters(shards, self._tables, self._hosts, "main")]

    def forward(self, runs: Sequence[Run], chunk: int, micro: int) -> list[Action]:
        """The buffer of gradients is set to zero; before the first use of parameters, their gathering is waited for."""
        actions: list[Action] = []
        if micro == 0 and chunk == min(self._chunks):
            rows = Rows(self._tables, self._hosts, Phase.OTHER)
            whole = self._numbers * _FP32
            rows.work("aten::fill_", Elementwise(0, whole, self._numbers, "float32", 1, "aten::fill_"))
            actions.append(self._do(rows, {}))
        if micro or not self._overlap:
            return [*actions, *runs]
        waited: set[int] = set()
        for run in runs:
            name = unit_of(self._graph, run)
            for one in self._units[name].parameters if name in self._units else ():
                bucket = self._of.get((name, one.name))
                if bucket is not None and bucket.number not in waited:
                    waited.add(bucket.number)
                    rows = Rows(self._tables, self._hosts, Phase.FORWARD)
                    rows.wait("gathered", 0)
                    actions.append(self._do(rows, {"gathered": ("bucket", "gathered", bucket.number)}))
            actions.append(run)
        return actions

    def update(self) -> list[Do]:
        """Updated shards are cast to the model's type."""
        (held,) = self.held()
        rows = Rows(self._tables, self._hosts, Phase.OPTIMIZER)
        dtype = self.buckets[0].dtype
        size = held.elements * dtype_bytes(dtype)
        rows.work(
            "aten::_foreach_copy_",
            Optimizer(held.elements * _FP32, size, held.elements, dtype, held.tensors, "aten::_foreach_copy_"),
        )
        return [self._do(rows, {})]

    def after_update(self) -> list[Action]:
        """Parameters are gathered, those that forward needs first before the others."""
        actions: list[Action] = []
        for bucket in reversed(self.buckets):
            rows = Rows(self._tables, self._hosts, Phase.FORWARD if self._overlap else Phase.OTHER)
            rows.record("ready", 0)
            rows.wait("ready", _STREAM)
            whole = self._padded(bucket) * dtype_bytes(bucket.dtype)
            rows.work("nccl::all_gather", Collective("all_gather", whole, bucket.dtype, self._group), stream=_STREAM)
            rows.record("gathered", _STREAM)
            if not self._overlap:
                rows.wait("gathered", 0)
            actions.append(self._do(rows, {slot: ("bucket", slot, bucket.number) for slot in ("ready", "gathered")}))
        return actions

    def _padded(self, bucket: Bucket) -> int:
        return -(-bucket.elements // self._ranks) * self._ranks

    def _add(self, rows: Rows, one: Parameter, again: bool, last: bool) -> None:
        """Each is added to the buffer in fp32."""
        count, held = elements(one), size(one)
        whole = count * _FP32
        rows.work("aten::add_", Elementwise(held + whole, whole, count, "float32", 2, "aten::add_"))
        rows.free(one.name, rounded(held))

    def _reduce(self, bucket: Bucket) -> Do:
        rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
        count = self._padded(bucket)
        scale = Elementwise(count * _FP32, count * _FP32, count, "float32", 1, "aten::mul_")
        rows.work("aten::mul_", scale)
        self._collective(rows, "reduce_scatter", count * _FP32, "float32")
        return self._do(rows, {slot: ("bucket", slot, bucket.number) for slot in ("ready", "reduced", "recorded")})
