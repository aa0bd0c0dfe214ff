"""Full activation recomputation: each repeated block runs forward again right before its backward pass.

As ``torch.utils.checkpoint`` without reentry does it: up to the last value that the backward pass needs.
"""

from __future__ import annotations

import dataclasses

from presim.graph.schedule import Action, Run, Schedule
from presim.graph.schema import OperatorGraph


def apply(schedule: Schedule, graph: OperatorGraph) -> Schedule:
    """The schedule with all repeated blocks recomputed."""
    actions: list[Action] = []
    for action in schedule:
        segment = graph.segments[action.segment] if isinstance(action, Run) else None
        if isinstance(action, Run) and segment and segment.backward and segment.name:
            actions.append(Run(segment.twin, action.block, action.micro, again=True))
            actions.append(dataclasses.replace(action, again=True))
        else:
            actions.append(action)
    return tuple(actions)
