"""The order of forward and backward passes in a stage of a pipeline with 1F1B, and what a longer pipeline makes of it.

A stage runs as many forward passes as stages follow it, and one more; then backward and forward passes take turns; then
come the backward passes that are left. Stages differ in the number of those alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from presim.errors import InputError


@dataclasses.dataclass(frozen=True, order=True)
class Pass:
    """A forward or backward pass of a micro-batch."""

    is_forward: bool
    micro_batch: int


@dataclasses.dataclass(frozen=True)
class PassOrder:
    """The passes of a step: ``leading`` forward passes precede the first backward pass.

    >>> order = PassOrder(2, 3)
    >>> "".join(f"F{turn.micro_batch}" if turn.is_forward else f"B{turn.micro_batch}" for turn in order.passes())
    'F0F1B0F2B1B2'
    """

    refers_by_position: ClassVar[bool] = False  # passes refer to those before and after them, rather than by number

    leading: int
    micro_batches: int

    @property
    def pairs(self) -> int:
        """Backward passes that a forward pass follows."""
        return self.micro_batches - self.leading

    def passes(self) -> Iterator[Pass]:
        """All passes, in their order."""
        for micro_batch in range(self.leading):
            yield Pass(True, micro_batch)
        for micro_batch in range(self.pairs):
            yield Pass(False, micro_batch)
            yield Pass(True, self.leading + micro_batch)
        for micro_batch in range(self.pairs, self.micro_batches):
            yield Pass(False, micro_batch)

    def position(self, turn: Pass) -> int | None:
        """Where a pass is in the order; None: there is no such micro-batch."""
        if not 0 <= turn.micro_batch < self.micro_batches:
            return None
        if turn.is_forward:
            late = turn.micro_batch - self.leading
            return turn.micro_batch if late < 0 else self.leading + 2 * late + 1
        return self.leading + turn.micro_batch + min(turn.micro_batch, self.pairs)

    def same_landmarks(self, captured: PassOrder, position: int) -> Iterator[int]:
        """Positions of what comes once in a step, as the pass at a position of a captured order does."""
        yield from ()

    def part_sources(self, captured: PassOrder) -> tuple[dict[Pass, Pass], ...]:
        """For each part of a pass, `sources`; here a pass is one part."""
        return (self.sources(captured),)

    def sources(self, captured: PassOrder) -> dict[Pass, Pass]:
        """For each pass, the one of a captured order that it repeats.

        The first and the last ones of each part are themselves, and further ones repeat the middle.

        Raises:
            InputError: the captured order has no pass to repeat.
        """
        source_by_pass = {}
        for turn in self.passes():
            if turn.is_forward:
                index = _stretched(turn.micro_batch, self._forward_parts(), captured._forward_parts())
            else:
                index = _stretched(turn.micro_batch, self._backward_parts(), captured._backward_parts())
            source_by_pass[turn] = Pass(turn.is_forward, index)
        return source_by_pass

    def _forward_parts(self) -> tuple[int, ...]:
        edge = min(self.leading, 2)  # the last of them is followed by a backward pass
        return (1, self.leading - edge, edge - 1, self.pairs)

    def _backward_parts(self) -> tuple[int, ...]:
        edge = min(self.leading, 2)
        return (self.pairs, 1, self.leading - edge, edge - 1)


def _stretched(index: int, parts: tuple[int, ...], captured_parts: tuple[int, ...]) -> int:
    """The index in captured parts that answers for one in parts of other lengths."""
    captured_begin = 0
    for length, captured_length in zip(parts, captured_parts):
        if index < length:
            if not captured_length:
                raise InputError(
                    "this stage was captured with too few passes before its first backward pass to say what more of "
                    "them do; capture the job with at least four stages, and with twice as many micro-batches"
                )
            return captured_begin + _within(index, length, captured_length)
        index -= length
        captured_begin += captured_length
    raise AssertionError("parts hold all micro-batches")


def _within(index: int, length: int, captured_length: int) -> int:
    """An index of a part from its beginning, or from its end, or else its middle."""
    middle = (captured_length - 1) // 2
    if index < middle:
        return index
    from_end = length - index
    return captured_length - from_end if from_end < captured_length - middle else middle
