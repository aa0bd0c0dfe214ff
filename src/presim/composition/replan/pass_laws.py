"""What a pass refers to in other passes: laws that hold in a captured order of passes, applied to another order.

A call refers to its own pass, to the one before or after it, or to a pass of its own or a neighbour's micro-batch.
Which of these it is shows in which of them leads to the same call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.pass_order import Pass, PassOrder

Ints = NDArray[np.int64]
_NEIGHBOURS = (0, 1, -1)  # passes from the referring one, the nearest first
_FURTHER = (1, -1, 2, -2)  # micro-batches, and passes


@dataclasses.dataclass(frozen=True)
class PassLaw:
    """The pass ``offset`` positions after one of the micro-batch of a neighbour, or after that neighbour itself.

    A neighbour of None is the last forward pass of the step, behind which the pipeline drains.
    """

    neighbour: int | None  # positions from the referring pass
    is_forward: bool | None  # direction of the pass of the neighbour's micro-batch; None: the neighbour itself
    later: int = 0  # micro-batches after the neighbour's
    offset: int = 0  # positions


def law_positions(order: PassOrder, passes: tuple[Pass, ...]) -> Ints:
    """Where the pass is that each law leads to from each pass, -1 where there is none [passes, laws].

    The most likely law is first.
    """
    laws = _LAWS_BY_POSITION if order.refers_by_position else _LAWS
    by_number = {is_forward: _positions(order, is_forward) for is_forward in (True, False)}
    numbers = np.array([turn.micro_batch for turn in passes], np.int64)
    positions = np.full((len(passes), len(laws)), -1, np.int64)
    last_forward = np.full(len(passes), by_number[True].max(initial=-1))
    for column, law in enumerate(laws):
        neighbours = np.arange(len(passes)) + law.neighbour if law.neighbour is not None else last_forward
        referring = np.flatnonzero((neighbours >= 0) & (neighbours < len(passes)))
        targets = neighbours[referring]
        if law.is_forward is not None:
            later = numbers[targets] + law.later
            is_there = (later >= 0) & (later < order.micro_batches)
            referring, targets = referring[is_there], by_number[law.is_forward][later[is_there]]
        targets = targets + law.offset
        is_there = (targets >= 0) & (targets < len(passes))
        positions[referring[is_there], column] = targets[is_there]
    return positions


def _positions(order: PassOrder, is_forward: bool) -> Ints:
    """The position of each micro-batch's pass of a direction."""
    positions = (order.position(Pass(is_forward, number)) for number in range(order.micro_batches))
    return np.array([-1 if position is None else position for position in positions], np.int64)


def _all_laws() -> Iterator[PassLaw]:
    yield from (PassLaw(neighbour, None) for neighbour in (0, -1, 1))
    for neighbour in _NEIGHBOURS:
        yield from (PassLaw(neighbour, is_forward) for is_forward in (True, False))
    for neighbour in _NEIGHBOURS:
        for offset in (-1, 1):
            yield from (PassLaw(neighbour, is_forward, offset=offset) for is_forward in (True, False))
    for later in _FURTHER:
        yield from (PassLaw(0, is_forward, later=later) for is_forward in (True, False))
    yield from (PassLaw(0, None, offset=offset) for offset in _FURTHER[2:])
    yield from (PassLaw(None, None, offset=offset) for offset in (1, 0))


def _laws_by_position() -> Iterator[PassLaw]:
    """Passes of neighbouring numbers may be of another chunk, so positions come first."""
    neighbours = (0, -1, 1, -2, 2)
    yield from (PassLaw(neighbour, None) for neighbour in neighbours)
    for neighbour in neighbours:
        yield from (PassLaw(neighbour, is_forward) for is_forward in (True, False))
    for neighbour in neighbours:
        for offset in (-1, 1, -2, 2):
            yield from (PassLaw(neighbour, is_forward, offset=offset) for is_forward in (True, False))


_LAWS = tuple(_all_laws())
_LAWS_BY_POSITION = tuple(_laws_by_position())
