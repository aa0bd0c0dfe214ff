"""What a pass refers to in other passes: laws that hold in a captured order of passes, applied to another order.

A call refers to its own pass, to the one before or after it, or to a pass of its own or a neighbour's micro-batch.
Which of these it is shows in which of them leads to the same call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from presim.composition.replan.pass_order import Pass, PassOrder

_NEIGHBOURS = (0, 1, -1)  # passes from the referring one, the nearest first
_FURTHER = (1, -1, 2, -2)  # micro-batches, and passes


@dataclasses.dataclass(frozen=True)
class PassLaw:
    """The pass ``offset`` positions after one of the micro-batch of a neighbour, or after that neighbour itself."""

    neighbour: int  # positions from the referring pass
    is_forward: bool | None  # direction of the pass of the neighbour's micro-batch; None: the neighbour itself
    later: int = 0  # micro-batches after the neighbour's
    offset: int = 0  # positions

    def position(self, order: PassOrder, passes: tuple[Pass, ...], referring: int) -> int | None:
        """Where the pass is that the one at ``referring`` refers to; None: the order has no such pass."""
        neighbour = referring + self.neighbour
        if not 0 <= neighbour < len(passes):
            return None
        position: int | None = neighbour
        if self.is_forward is not None:
            position = order.position(Pass(self.is_forward, passes[neighbour].micro_batch + self.later))
        if position is None or not 0 <= position + self.offset < len(passes):
            return None
        return position + self.offset


def laws_between(order: PassOrder, passes: tuple[Pass, ...], referring: int, target: int) -> Iterator[PassLaw]:
    """The laws by which the pass at ``referring`` refers to the one at ``target``, the most likely first."""
    for law in _LAWS_BY_POSITION if order.refers_by_position else _LAWS:
        if law.position(order, passes, referring) == target:
            yield law


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
