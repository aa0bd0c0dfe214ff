"""What one rank does in a step, in order: blocks of the graph that run, and what a framework does between them.

Passes turn one schedule into another. `keys` says which storage of which block a slot means, so that memory has
lifetimes across blocks, micro-batches and recomputation.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from presim.compose.rows import Template
from presim.graph.schema import OperatorGraph, Origin

Key: TypeAlias = tuple[object, ...]  # names a block of memory or an event within a step


@dataclasses.dataclass(frozen=True)
class Run:
    """One block of a segment runs, for one micro-batch."""

    segment: int
    block: int = 0  # from 0, in the order of the forward pass
    micro: int = 0
    again: bool = False  # forward: it is recomputed; backward: it uses what was recomputed
    chunk: int = 0  # stage of a pipeline that it runs for, where several run a segment


@dataclasses.dataclass(frozen=True)
class Do:
    """A framework does something: entries of a template, and what its slots mean here."""

    template: Template
    keys: tuple[Key, ...]  # one for each slot
    scope: str = ""  # module path
    of_all: bool = False  # its micro-batches are counted among all, where a step lacks some


Action: TypeAlias = Run | Do
Schedule: TypeAlias = tuple[Action, ...]


def training_step(graph: OperatorGraph, micro: int = 0) -> Schedule:
    """One micro-batch, forward and backward, as eager PyTorch runs it."""
    actions: list[Action] = []
    for index, segment in enumerate(graph.segments):
        blocks = range(segment.count)
        actions += [Run(index, block, micro) for block in (reversed(blocks) if segment.backward else blocks)]
    return tuple(actions)


def value_key(graph: OperatorGraph, run: Run, index: int) -> Key | None:
    """The storage that a value of a block means in the step; None for what is there before it (parameters, inputs)."""
    segment = graph.segments[run.segment]
    value = segment.values[index]
    if value.origin is Origin.OWN:
        block = run.chunk if segment.shared else run.block
        return (run.micro, run.segment, block, run.again and not segment.backward, index)
    if value.origin is Origin.CARRY:
        before = run.block + 1 if segment.backward else run.block - 1
        if 0 <= before < segment.count:
            again = segment.backward and run.again
            return value_key(graph, Run(run.segment, before, run.micro, again, run.chunk), value.again)
    if value.origin in (Origin.CARRY, Origin.SEGMENT):
        other = graph.segments[value.segment]
        is_part = value.origin is Origin.SEGMENT and segment.twin >= 0 and other.twin == segment.twin
        is_same = segment.twin == value.segment or is_part
        last = 0 if other.backward else other.count - 1
        block = run.block if is_same else last
        again = is_same and run.again
        return value_key(graph, Run(value.segment, block, run.micro, again, run.chunk), value.index)
    return None
