"""Full activation recomputation: each repeated block runs its forward pass again right before its backward pass.

As in non-reentrant ``torch.utils.checkpoint``, recomputation stops at the last value that the backward pass needs.
"""

from __future__ import annotations

import dataclasses

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.schedule import Action, BlockRun, Schedule


def apply(schedule: Schedule, graph: OperatorGraph, blocks: int = 0) -> Schedule:
    """Add recomputation of repeated blocks to a schedule; ``blocks``: only the first so many, 0 for all."""
    before = _blocks_before(graph)
    actions: list[Action] = []
    for action in schedule:
        segment = graph.segments[action.segment] if isinstance(action, BlockRun) else None
        if (
            isinstance(action, BlockRun)
            and segment
            and segment.backward
            and segment.name
            and (not blocks or before[segment.twin] + action.block < blocks)
        ):
            actions.append(BlockRun(segment.twin, action.block, action.micro, recomputed=True))
            actions.append(dataclasses.replace(action, recomputed=True))
        else:
            actions.append(action)
    return tuple(actions)


def _blocks_before(graph: OperatorGraph) -> dict[int, int]:
    """Forward segment -> number of repeated blocks that run before it."""
    blocks_before, blocks = {}, 0
    for index, segment in enumerate(graph.segments):
        if segment.name and not segment.backward:
            blocks_before[index] = blocks
            blocks += segment.count
    return blocks_before
