"""Fused kernels run as the nodes that they stand for, with nothing at hand but what the kernel reads."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import msgspec

from presim.composition.graph.graph_schema import Node, Segment, ValueOrigin
from presim.composition.passes import fusion
from presim.composition.schedule import BlockRun, value_key

if TYPE_CHECKING:
    from support.executing.interpreter import Rank

RUN = "run"  # attribute of a fused node: index of what it stands for
RUNS: list[tuple[Node, list[Node], bool]] = []  # fused node, nodes that it stands for, whether of the backward pass
_fused_run = fusion._fused_run


def _remembered(run: list[Node], segment: Segment, *others: Any) -> list[Node]:
    """The pass's result, whose fused node knows what it stands for."""
    nodes = _fused_run(run, segment, *others)
    if nodes is run:
        return run
    RUNS.append((nodes[0], [node for node in run if not node.view], segment.backward))
    attributes = {**nodes[0].attributes, RUN: len(RUNS) - 1}
    return [msgspec.structs.replace(nodes[0], attributes=attributes), *nodes[1:]]


def remember() -> None:
    """From now on, fused nodes know what they stand for."""
    fusion._fused_run = _remembered


def compute(rank: Rank, run: BlockRun, node: Node) -> None:
    """Run the nodes beside the rank's storages, and keep of their results what the kernel writes.

    A value that the kernel does not name among its inputs is not there, and one that it does not name among its outputs
    is gone; either ends the test as soon as a node wants it.
    """
    first, inner, backward = RUNS[int(str(node.attributes[RUN]))]
    segment = rank.graph.segments[run.segment]
    # a backward pass that recomputes has the forward pass's kernels, with numbers of its own for their values
    home = run if segment.backward == backward else dataclasses.replace(run, segment=segment.twin)
    key = functools.partial(value_key, rank.graph)
    read, written = zip(first.inputs, node.inputs), zip(first.outputs, node.outputs)
    given = {key(home, old.value): rank.storages.get(key(run, new.value)) for old, new in read}  # type: ignore[arg-type]
    outside, rank.storages = rank.storages, {old: one.clone() for old, one in given.items() if one is not None}  # type: ignore[misc]
    values, known = rank.graph.segments[home.segment].values, {one.value for one in first.inputs}
    for one in inner:
        wanted = {
            part.value for part in one.inputs if values[part.value].origin in (ValueOrigin.PARAMETER, ValueOrigin.INPUT)
        }
        assert wanted <= known, f"{node.operator} has no input {[values[place].name for place in wanted - known]}"
        rank.compute(home, one)
    outside |= {key(run, new.value): rank.storages[key(home, old.value)] for old, new in written}  # type: ignore[index, misc]
    rank.storages = outside
