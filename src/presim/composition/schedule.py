"""One rank's step as an ordered list of actions: blocks of the graph, and framework actions between them.

Passes turn one schedule into another. `keys` gives the storage that each slot refers to, so that memory lifetimes span
blocks, micro-batches and recomputation.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

from presim.composition.entry_templates import Template
from presim.composition.graph.graph_schema import OperatorGraph, ValueOrigin

Key: TypeAlias = tuple[object, ...]  # identifies a memory block or an event within a step


@dataclasses.dataclass(frozen=True)
class BlockRun:
    """Run one block of a segment for one micro-batch."""

    segment: int
    block: int = 0  # from 0, in forward order
    micro: int = 0
    recomputed: bool = False  # forward: this is a recomputation; backward: it uses recomputed values
    chunk: int = 0  # virtual pipeline stage, if several run the same segment


@dataclasses.dataclass(frozen=True)
class Do:
    """A framework action: a template's entries with names for its slots."""

    template: Template
    keys: tuple[Key, ...]  # one per slot
    scope: str = ""  # module path
    of_all: bool = False  # its micro-batch numbers count over all micro-batches, including omitted ones
    # where a forward pass begins that runs beside a backward pass, where the latter begins, and where both have ended
    side_by_side: Literal["", "begin", "middle", "end"] = ""


Action: TypeAlias = BlockRun | Do
Schedule: TypeAlias = tuple[Action, ...]


def training_step(graph: OperatorGraph, micro: int = 0) -> Schedule:
    """Forward and backward pass of one micro-batch, as eager PyTorch runs them."""
    actions: list[Action] = []
    for index, segment in enumerate(graph.segments):
        blocks = range(segment.count)
        actions += [BlockRun(index, block, micro) for block in (reversed(blocks) if segment.backward else blocks)]
    return tuple(actions)


def value_key(graph: OperatorGraph, run: BlockRun, index: int) -> Key | None:
    """The storage of a block's value within the step; None if it exists before the step (parameters, inputs)."""
    segment = graph.segments[run.segment]
    value = segment.values[index]
    if value.origin is ValueOrigin.OWN:
        block = run.chunk if segment.shared else run.block
        return (run.micro, run.segment, block, run.recomputed and not segment.backward, index)
    if value.origin is ValueOrigin.CARRY:
        before = run.block + 1 if segment.backward else run.block - 1
        if 0 <= before < segment.count:
            recomputed = segment.backward and run.recomputed
            return value_key(graph, BlockRun(run.segment, before, run.micro, recomputed, run.chunk), value.again)
    if value.origin in (ValueOrigin.CARRY, ValueOrigin.SEGMENT):
        other = graph.segments[value.segment]
        is_part = value.origin is ValueOrigin.SEGMENT and segment.twin >= 0 and other.twin == segment.twin
        is_same = segment.twin == value.segment or is_part
        last = 0 if other.backward else other.count - 1
        block = run.block if is_same else last
        recomputed = is_same and run.recomputed
        return value_key(graph, BlockRun(value.segment, block, run.micro, recomputed, run.chunk), value.index)
    return None
