"""Runs the nodes of an operator graph one by one on CPU tensors, its communication by `torch.distributed`.

A value is a storage of one dimension; a node sees it by the shapes and strides that passes have left in the graph, so
views need not run. Parameters are this rank's part of whole ones. What a GPU does in one kernel and the CPU has none
for (attention, losses over split words) is in `kernels`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist

from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Parameter, ValueOrigin
from presim.composition.graph.sizes import read
from presim.composition.passes.collective_names import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    SEND_RECV,
    WAIT,
)
from presim.composition.schedule import BlockRun, Key, value_key
from support.executing import experts, fused, kernels, narrow, recording, ring


class Rank:
    """One rank of a group with its storages."""

    def __init__(
        self,
        graph: OperatorGraph,
        size: tuple[int, int],
        parameters: dict[str, torch.Tensor],
        inputs: dict[str, torch.Tensor],
        shifted: torch.Tensor,
        group: Any = None,
        positions: torch.Tensor | None = None,
    ) -> None:
        """``size``: batch and S; ``parameters``, ``inputs``: this rank's; ``positions``: of its tokens, with CP."""
        self.graph, self.parameters, self.inputs, self.shifted = graph, parameters, inputs, shifted
        self.group, self.positions = group, positions
        self.shapes = [tuple(read(one)(*size) for one in shape) for shape in graph.shapes]
        self.bytes = [[read(value.bytes)(*size) for value in segment.values] for segment in graph.segments]
        self.batch = size[0]
        self.storages: dict[Key, torch.Tensor] = {}
        self.whole: dict[int, tuple[int, ...]] = {}  # storage's address -> shape of what was gathered into it
        self.reduced = 0
        self.experts = 0  # of a layer, of all ranks
        self.format = ""  # of narrow products
        self.memory = kernels.Memory()
        self.loss = torch.empty(())  # what the forward pass has ended with

    @property
    def ranks(self) -> int:
        """How many the group has."""
        return dist.get_world_size(self.group)

    @property
    def place(self) -> int:
        """This rank's number in the group."""
        return dist.get_rank(self.group)

    def run(self, run: BlockRun) -> None:
        """One block of a segment."""
        segment = self.graph.segments[run.segment]
        for node in segment.nodes:
            if node.operator == WAIT or (node.view and not node.operator.startswith("comm::")):
                continue
            if node.operator.startswith("comm::"):
                self._communicate(run, node)
            elif fused.RUN in node.attributes:
                fused.compute(self, run, node)
            elif not narrow.compute(self, run, node):
                self.compute(run, node)

    def storage(self, run: BlockRun, index: int, dtype: str = "") -> torch.Tensor | None:
        """What a value lies in; made where it is not there and its type is known."""
        segment = self.graph.segments[run.segment]
        value = segment.values[index]
        key = value_key(self.graph, run, index)
        if key is None:
            block = f"{segment.name[:-2]}.{segment.first + run.block}" if value.name[:1] == "." else ""
            name = f"{block}{value.name}"
            if value.origin is ValueOrigin.INPUT:
                return self.inputs[name].detach().reshape(-1)
            return narrow.stored(self.parameters, name)
        if key not in self.storages and dtype:
            kind = getattr(torch, dtype)
            self.storages[key] = torch.zeros(max(1, self.bytes[run.segment][index] // kind.itemsize), dtype=kind)
        return self.storages.get(key)

    def tensor(self, run: BlockRun, operand: Operand, offset: int = 0, make: bool = False) -> torch.Tensor:
        """A tensor as a node sees it."""
        storage = self.storage(run, operand.value, operand.dtype if make else "")
        assert storage is not None, f"{run}: value {operand.value} is used before it is made"
        shape, stride = self.shapes[operand.shape], self.shapes[operand.stride]
        span = 1 + sum((size - 1) * step for size, step in zip(shape, stride))
        last = len(storage) - span  # an offset that counts tokens is one of the trace's: the last token's
        return storage.as_strided(shape, stride, min(offset, last))

    def compute(self, run: BlockRun, node: Node) -> None:
        """One node, by the call that it was recorded from."""
        offsets: Any = node.attributes.get("offsets", [0] * (len(node.inputs) + len(node.outputs)))
        inputs = [self.tensor(run, one, at) for one, at in zip(node.inputs, offsets)]
        shapes = [self.shapes[one.shape] for one in node.outputs]
        made: Any = experts.special(self, node, inputs, shapes)
        made = kernels.special(self, node, inputs, shapes) if made is None else made
        if made is None and "call" not in node.attributes:  # what a pass has put in: a copy
            made = [inputs[0].clone()]
        if made is None:
            function, args, kwargs = recording.filled(int(str(node.attributes["call"])), inputs)
            result = function(*args, **kwargs)
            made = list(result) if isinstance(result, (tuple, list)) else [result]
        for one, at, result in zip(node.outputs, offsets[len(node.inputs) :] or [0] * len(made), made):
            tensor = self.tensor(run, one, at, make=True)
            if result is not None:
                tensor.copy_(result)
        if node.operator == "aten::nll_loss_forward":
            self.loss = self.tensor(run, node.outputs[0])

    def _communicate(self, run: BlockRun, node: Node) -> None:
        """Along the dimension that the shapes tell."""
        if node.attributes["group"] == experts.GROUP:
            experts.communicate(self, run, node)
            return
        if node.operator == ALL_REDUCE:
            self.reduced += 1
            if self.storage(run, node.inputs[0].value) is not None:  # else a loss over split words has done it
                given = self.tensor(run, node.inputs[0])
                given.copy_(_summed(given, self.group))
            return
        if node.operator == SEND_RECV:
            came = ring.send_on([self.tensor(run, one).contiguous() for one in node.inputs], self.group)
            for one, result in zip(node.outputs, came):
                self.tensor(run, one, make=True).copy_(result)
            return
        given, out = self.tensor(run, node.inputs[0]).contiguous(), node.outputs[0]
        shape = self.shapes[out.shape]
        is_turned = len(shape) == 2 and given.shape[1] != shape[1]
        if is_turned:
            given, shape = given.t(), (shape[1], shape[0])
        if len(shape) == 2:  # batch and tokens in one
            given = given.reshape(self.batch, -1, shape[1])
            shape = (self.batch, shape[0] // self.batch, shape[1])
        longer = [dim for dim, (a, b) in enumerate(zip(given.shape, shape)) if a < b]
        shorter = [dim for dim, (a, b) in enumerate(zip(given.shape, shape)) if a > b]
        if node.operator == ALL_GATHER:
            result = torch.cat(_gathered(given, self.group), longer[0])
        elif node.operator == REDUCE_SCATTER:
            result = _summed(given, self.group).chunk(self.ranks, shorter[0])[self.place]
        else:
            assert node.operator == ALL_TO_ALL
            parts = [one.chunk(self.ranks, shorter[0])[self.place] for one in _gathered(given, self.group)]
            result = torch.cat(parts, longer[0])
        made = self.tensor(run, out, make=True)
        assert math.prod(shape) == result.numel()
        made.copy_(result.reshape(made.t().shape).t() if is_turned else result.reshape(made.shape))
        self.whole[made.untyped_storage().data_ptr()] = shape


def _summed(given: torch.Tensor, group: Any) -> torch.Tensor:
    result = given.clone()
    dist.all_reduce(result, group=group)
    return result


def _gathered(given: torch.Tensor, group: Any) -> list[torch.Tensor]:
    parts = [torch.empty_like(given) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, given, group=group)
    return parts


def part_of(whole: torch.Tensor, local: tuple[int, ...], place: int) -> torch.Tensor:
    """This rank's part of a parameter: along the dimension that a pass has made shorter."""
    for dim, (size, part) in enumerate(zip(whole.shape, local)):
        if size != part:
            return whole.narrow(dim, place * part, part).clone()  # with a storage of its own
    return whole


def names(graph: OperatorGraph) -> dict[str, Parameter]:
    """Full names of all parameters."""
    found = {}
    for one in graph.parameters:
        segment = graph.segments[one.segment] if one.segment >= 0 else None
        if segment is None:
            found[one.name] = one
        else:
            found |= {f"{segment.name[:-2]}.{segment.first + at}{one.name}": one for at in range(segment.count)}
    return found
