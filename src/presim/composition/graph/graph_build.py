"""Build a graph from a recording: equal blocks are detected by structure and kept once; sizes become polynomials."""

from __future__ import annotations

import math

from presim.composition.graph.gradient_sums import sum_in_place
from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Parameter, Segment, Value, ValueOrigin
from presim.composition.graph.recorded_blocks import (
    Block,
    RecordedBlock,
    block_of,
    find_runs,
    group_runs,
    relative,
    relative_scope,
)
from presim.composition.graph.recording import RecordedCall, Recording, Repeats, Tensor
from presim.composition.graph.sizes import Size, Witnesses, product
from presim.trace.dtypes import dtype_bytes


def build(recording: Recording) -> OperatorGraph:
    """The graph of a recording."""
    recording = sum_in_place(recording)
    runs = find_runs(recording)
    groups = group_runs(recording, runs)
    return _Builder(recording, runs, groups).graph()


def _dense_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape in memory: expanded dimensions have size 1."""
    return tuple(1 if stride == 0 and size > 1 else size for size, stride in zip(tensor.shape, tensor.stride))


class _Builder:
    """Numbers values and shapes."""

    def __init__(self, recording: Recording, runs: list[RecordedBlock], groups: list[list[int]]) -> None:
        self._recording, self._runs, self._groups = recording, runs, groups
        self._witnesses = Witnesses(recording.batch, recording.sequence)
        self._sizes: dict[int, Size] = {}
        self._shapes: dict[tuple[Size, ...], int] = {}
        self._segment_of = {run: segment for segment, group in enumerate(groups) for run in group}
        self._first_run: dict[int, int] = {}  # storage -> run that makes it
        for index, run in enumerate(runs):
            for storage in run.storages:
                if recording.storages[storage].kind == "own":
                    self._first_run.setdefault(storage, index)
        self._filling: dict[int, Tensor] = {}
        for call in recording.calls:
            for tensor in (*call.inputs, *call.outputs):
                dense_bytes = math.prod(_dense_shape(tensor)) * dtype_bytes(tensor.dtype)
                if dense_bytes == recording.storages[tensor.storage].bytes:
                    self._filling.setdefault(tensor.storage, tensor)
        self._index_by_storage = [{storage: index for index, storage in enumerate(run.storages)} for run in runs]

    def graph(self) -> OperatorGraph:
        segments = tuple(self._segment(index) for index in range(len(self._groups)))
        recording = self._recording
        lists = [repeat.name for repeat in recording.repeats]
        return OperatorGraph(
            recording.model,
            recording.root,
            segments,
            tuple(self._shapes),
            self._parameters(),
            dict(recording.tensor_parallel),
            {"batch": recording.batch, "sequence": recording.sequence},
            recording.versions,
            recording.notes,
            sum(
                storage.bytes
                for storage in recording.storages
                if storage.kind == "buffer" and not block_of(storage.name, lists)
            ),
        )

    def _segment(self, index: int) -> Segment:
        group = self._groups[index]
        run = self._runs[group[0]]
        repeat = self._repeat(run.block)
        blocks = sorted(number for g in group if (block := self._runs[g].block) for number in block[1:])
        count = len(group)
        if repeat and repeat.first + repeat.traced // 2 in blocks:
            count += repeat.count - repeat.traced
        return Segment(
            name=f"{repeat.name}.*" if repeat else "",
            backward=run.backward,
            values=tuple(self._value(group, index_in_run) for index_in_run in range(len(run.storages))),
            nodes=tuple(self._node(call, run, self._index_by_storage[group[0]]) for call in run.calls),
            first=self._number(blocks[0], repeat) if repeat else 0,
            count=count,
            twin=self._twin(run) if run.backward else -1,
            gradients={
                relative(name, run): self._index_by_storage[group[0]][storage]
                for storage, name in self._recording.gradients.items()
                if self._last_run_using(storage) == group[0]
            },
        )

    def _last_run_using(self, storage: int) -> int:
        """The run that uses a gradient's storage last."""
        return max(
            index for index, run in enumerate(self._runs) if storage in self._index_by_storage[index] and run.calls
        )

    def _repeat(self, block: Block) -> Repeats | None:
        """The group of equal blocks that contains a traced block."""
        for repeat in self._recording.repeats if block else ():
            if block and repeat.name == block[0] and repeat.first <= block[1] < repeat.first + repeat.traced:
                return repeat
        return None

    def _number(self, block: int, repeat: Repeats) -> int:
        """A traced block's number in the complete model; the export cut the middle of equal blocks."""
        before = (
            earlier
            for earlier in self._recording.repeats
            if earlier.name == repeat.name and earlier.first < repeat.first
        )
        past = repeat.count - repeat.traced if block > repeat.first + repeat.traced // 2 else 0
        return block + sum(earlier.count - earlier.traced for earlier in before) + past

    def _twin(self, run: RecordedBlock) -> int:
        if run.block is None:
            return -1
        return next(
            segment
            for segment, group in enumerate(self._groups)
            if any(self._runs[g].block == run.block and not self._runs[g].backward for g in group)
        )

    def _value(self, group: list[int], index_in_run: int) -> Value:
        run = self._runs[group[0]]
        storage = run.storages[index_in_run]
        described = self._recording.storages[storage]
        size = self._bytes(storage)
        if described.kind != "own":
            origin = (
                ValueOrigin(described.kind)
                if described.kind in ("parameter", "buffer", "input")
                else ValueOrigin.BUFFER
            )
            return Value(origin, size, relative(described.name, run))
        maker = self._first_run[storage]
        if maker == group[0]:
            return Value(ValueOrigin.OWN, size)
        twin = self._forward_run(run)
        if twin is not None and storage in self._index_by_storage[twin]:
            return Value(ValueOrigin.SEGMENT, size, "", self._segment_of[twin], self._index_by_storage[twin][storage])
        segment, index = self._segment_of[maker], self._index_by_storage[maker][storage]
        if len(group) > 1:
            second_storage = self._runs[group[1]].storages[index_in_run]
            their_maker = self._first_run[second_storage]
            if their_maker == group[0]:
                return Value(
                    ValueOrigin.CARRY, size, "", segment, index, self._index_by_storage[group[0]][second_storage]
                )
            if carried_position := self._carried_index(group, second_storage):
                return Value(ValueOrigin.CARRY, size, "", segment, index, carried_position - 1)
        return Value(ValueOrigin.SEGMENT, size, "", segment, index)

    def _forward_run(self, run: RecordedBlock) -> int | None:
        """The forward run of the same block, for a backward run; else None."""
        if run.block is None or not run.backward:
            return None
        return next(i for i, other in enumerate(self._runs) if other.block == run.block and not other.backward)

    def _bytes(self, storage: int) -> Size:
        """A storage's size, from the tensor that covers all of it if there is one."""
        number, first = self._recording.storages[storage].bytes, self._filling.get(storage)
        if first is None:
            return self._witnesses.describe_padded(number)
        return product([dtype_bytes(first.dtype), *map(self._size, _dense_shape(first))])

    def _carried_index(self, group: list[int], storage: int) -> int:
        """Index + 1 of a storage in the block before if that block wrote to it and another one created it; else 0."""
        before = self._index_by_storage[group[0]]
        maker = self._first_run[storage]
        is_other = storage in before and self._runs[maker].block != self._runs[group[1]].block
        written = any(
            call.inputs[position].storage == storage for call in self._runs[group[0]].calls for position in call.written
        )
        return before[storage] + 1 if is_other and written else 0

    def _node(self, call: RecordedCall, run: RecordedBlock, index_by_storage: dict[int, int]) -> Node:
        return Node(
            call.operator,
            relative_scope(call.scope, run),
            tuple(self._operand(tensor, index_by_storage) for tensor in call.inputs),
            tuple(self._operand(tensor, index_by_storage) for tensor in call.outputs),
            call.view,
            call.written,
            call.attributes,
            call.adds,
        )

    def _operand(self, tensor: Tensor, index_by_storage: dict[int, int]) -> Operand:
        stride = self._shapes.setdefault(self._strides(tensor), len(self._shapes))
        return Operand(index_by_storage[tensor.storage], self._shape(tensor.shape), tensor.dtype, stride)

    def _strides(self, tensor: Tensor) -> tuple[Size, ...]:
        """The product of the inner sizes where dimensions are dense; otherwise the size of the stride as a number."""
        stride_by_dim: dict[int, Size] = {}
        end = 0  # extent of the inner dimensions in memory, in elements
        size: Size = 0  # the same extent as a polynomial
        for dim in sorted(range(len(tensor.shape)), key=lambda dim: (tensor.stride[dim], -dim)):
            step = tensor.stride[dim]
            stride_by_dim[dim] = size if end and step == end else self._size(step)
            if step and tensor.shape[dim] > 1:
                end, size = step * tensor.shape[dim], product([stride_by_dim[dim], self._size(tensor.shape[dim])])
        return tuple(stride_by_dim[dim] for dim in range(len(tensor.shape)))

    def _shape(self, shape: tuple[int, ...]) -> int:
        return self._shapes.setdefault(tuple(self._size(size) for size in shape), len(self._shapes))

    def _size(self, number: int) -> Size:
        if number not in self._sizes:
            self._sizes[number] = self._witnesses.describe(number)
        return self._sizes[number]

    def _parameters(self) -> tuple[Parameter, ...]:
        lists = list(dict.fromkeys(repeat.name for repeat in self._recording.repeats))
        segment_of: dict[Block, tuple[int, bool]] = {}
        for segment, group in enumerate(self._groups):
            for position, index in enumerate(group):
                run = self._runs[index]
                if run.block and not run.backward:
                    segment_of[run.block] = (segment, position == 0)
        parameters = []
        for named in self._recording.parameters:
            block = block_of(named.name, lists)
            segment, is_first = segment_of.get(block, (-1, True))
            if block is None or segment < 0:
                parameters.append(Parameter(named.name, named.shape, named.dtype))
            elif is_first:
                parameters.append(
                    Parameter(named.name[len(f"{block[0]}.{block[1]}") :], named.shape, named.dtype, segment)
                )
        return tuple(parameters)
