"""The order of passes in a stage under interleaved 1F1B, as Megatron-core has it, and what else each pass does.

A stage holds several chunks of layers. Those of the first and of the last stages may differ from each other. Micro-
batches go through a chunk in groups of as many as there are stages, then through the next chunk. A pass is that of one
chunk. Its number counts forward passes in their order, also for backward passes: that of the same micro-batch and
chunk. Stages between the first and the last differ in the passes that they run ahead, and in the passes beside which
parameters are gathered and gradients reduced.

Source of the order: `forward_backward_pipelining_with_interleaving` of Megatron-core 0.16.1. A captured stage has to
run its passes in that order (`presim.composition.replan.passes`), so another schedule is refused.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import ClassVar

from presim.composition.replan.pass_order import Pass, PassOrder
from presim.composition.replan.stage_sources import ONE_AT_EACH_END, Ends
from presim.errors import InputError


@dataclasses.dataclass(frozen=True)
class InterleavedOrder(PassOrder):
    """The passes of a step of one stage; ``micro_batches`` counts each once for each chunk.

    >>> order = InterleavedOrder.of(micro_batches=4, chunks=2, stages=2, stage=1)
    >>> "".join(f"F{turn.micro_batch}" if turn.is_forward else f"B{turn.micro_batch}" for turn in order.passes())
    'F0F1F2B2F3B3F4B0F5B1F6B6F7B7B4B5'
    """

    refers_by_position: ClassVar[bool] = True

    chunks: int = 1
    stages: int = 1
    stage: int = 0
    ends: Ends = ONE_AT_EACH_END  # stages whose first or last chunk has layers of its own

    @staticmethod
    def of(micro_batches: int, chunks: int, stages: int, stage: int, ends: Ends = ONE_AT_EACH_END) -> InterleavedOrder:
        """The order of a stage in a step of so many micro-batches, a multiple of the stages."""
        total = micro_batches * chunks
        ahead = 2 * (stages - stage - 1) + (chunks - 1) * stages
        return InterleavedOrder(min(ahead + 1, total), total, chunks, stages, stage, ends)

    def passes(self) -> Iterator[Pass]:
        """All passes, in their order."""
        for turn in super().passes():
            yield turn if turn.is_forward else Pass(False, self._mirrored(turn.micro_batch))

    def position(self, turn: Pass) -> int | None:
        """Where a pass is in the order; None: there is none of that number."""
        if turn.is_forward or not 0 <= turn.micro_batch < self.micro_batches:
            return super().position(turn)
        return super().position(Pass(False, self._mirrored(turn.micro_batch)))

    def part_sources(self, captured: PassOrder) -> tuple[dict[Pass, Pass], ...]:
        """For the layers of each pass, and for what follows them up to the next one, the captured pass with the same.

        Raises:
            InputError: the captured order has no such pass.
        """
        assert isinstance(captured, InterleavedOrder)
        return tuple(
            self._matched(list(roles), captured, list(captured_roles))
            for roles, captured_roles in (
                (self._layer_roles(), captured._layer_roles()),
                (self._message_roles(), captured._message_roles()),
            )
        )

    def same_landmarks(self, captured: PassOrder, position: int) -> Iterator[int]:
        """See `PassOrder.same_landmarks`: passes beside which a chunk is gathered or reduced, and those at a border."""
        assert isinstance(captured, InterleavedOrder)
        for landmark, captured_position in captured._landmarks.items():
            if captured_position == position and landmark in self._landmarks:
                yield self._landmarks[landmark]

    @functools.cached_property
    def _landmarks(self) -> dict[Hashable, int]:
        """Positions of passes by what comes once in a step up to the next pass."""
        turns = list(self.passes())
        landmarks: dict[Hashable, int] = {}
        for position, (turn, following) in enumerate(zip(turns, [*turns[1:], None])):
            reduced = self._reduced_chunk(turn)
            gathered = None if following is None else self._gathered_chunk(following)
            landmarks |= {("reduced", reduced): position} if reduced is not None else {}
            landmarks |= {("gathered", gathered): position} if gathered is not None else {}
            from_border = self._index(turn) - (self._ahead if turn.is_forward else self.micro_batches - self._ahead)
            landmarks |= {("border", turn.is_forward, from_border): position} if from_border in (-1, 0) else {}
        return landmarks

    def _matched(self, roles: list[_Role], captured: InterleavedOrder, captured_roles: list[_Role]) -> dict[Pass, Pass]:
        candidates = defaultdict(list)
        for role in captured_roles:
            candidates[role.content].append(role)
        source_by_pass = {}
        nearest: dict[tuple[Hashable, tuple[int, ...]], Pass] = {}  # passes of one role have one source
        for role in roles:
            if role.content not in candidates:
                raise InputError(
                    f"in stage {self.stage} of {self.stages}, what is exchanged beside a pass of chunk "
                    f"{self._chunk(role.turn.micro_batch)} is exchanged beside no pass of {captured.stages} stages"
                )
            key = role.content, role.preference
            if key not in nearest:
                nearest[key] = min(candidates[role.content], key=functools.partial(_distance, role)).turn
            source_by_pass[role.turn] = nearest[key]
        return source_by_pass

    def _mirrored(self, number: int) -> int:
        """The position among backward passes of the forward pass of that number, and the other way round."""
        group, number_in_group = divmod(number, self.chunks * self.stages)
        chunk, index = divmod(number_in_group, self.stages)
        return (group * self.chunks + self.chunks - 1 - chunk) * self.stages + index

    def _chunk(self, number: int) -> int:
        return number // self.stages % self.chunks

    def _micro_batch(self, number: int) -> int:
        return number // (self.chunks * self.stages) * self.stages + number % self.stages

    def _layer_roles(self) -> Iterator[_Role]:
        """The first micro-batch casts weights, the last one leaves gradients; stages at the ends have other layers.

        The first one's gradients of FP8 weights replace what was there, those of others are added to it. Layers wait
        for what the pass before them left on their streams.
        """
        turns = list(self.passes())
        for before, turn in zip([None, *turns[:-1]], turns):
            chunk, micro_batch = self._chunk(turn.micro_batch), self._micro_batch(turn.micro_batch)
            is_last = not turn.is_forward and micro_batch == self.micro_batches // self.chunks - 1
            boundaries = micro_batch == 0, is_last
            phase = self._phase(turn)
            follows = None if before is None else before.is_forward
            is_first = self._index(turn) == 0
            content = (turn.is_forward, follows, is_first, *self.own_layers(turn), *boundaries)
            yield _Role(content, (chunk, *map(int, phase), *self._ends(turn)), turn)

    def _message_roles(self) -> Iterator[_Role]:
        """What follows a pass reaches to the next one, so it has what precedes that."""
        turns = list(self.passes())
        for turn, following in zip(turns, [*turns[1:], None]):
            is_sent = not (self._has_loss(turn) if turn.is_forward else self._embeds(turn))
            after = (turn.is_forward, *self._phase(turn), self._receives(turn), is_sent, self._reduced_chunk(turn))
            before_next: tuple[Hashable, ...] = ()
            chunks = [self._chunk(turn.micro_batch)]
            if following is not None:
                is_awaited = not (self._embeds(following) if following.is_forward else self._has_loss(following))
                before_next = (
                    following.is_forward, *self._phase(following), is_awaited, self._gathered_chunk(following)
                )  # fmt: skip
                chunks.append(self._chunk(following.micro_batch))
            yield _Role((after, before_next), (*chunks, *self._ends(turn)), turn)

    def _embeds(self, turn: Pass) -> bool:
        return self.stage == 0 == self._chunk(turn.micro_batch)

    def _has_loss(self, turn: Pass) -> bool:
        return self.stage == self.stages - 1 and self._chunk(turn.micro_batch) == self.chunks - 1

    def own_layers(self, turn: Pass) -> tuple[bool, bool]:
        """Whether a pass is of layers that only the first or only the last stages have, as an embedding and a loss."""
        head, tail = self.ends
        chunk = self._chunk(turn.micro_batch)
        return self.stage < head and chunk == 0, self.stage >= self.stages - tail and chunk == self.chunks - 1

    def _ends(self, turn: Pass) -> tuple[int, int]:
        """Whether a pass is the first or the last of its chunk and group, or next to these."""
        index = turn.micro_batch % self.stages
        return min(index, 2), min(self.stages - 1 - index, 2)

    @functools.cached_property
    def _ahead(self) -> int:
        return 2 * (self.stages - self.stage - 1) + (self.chunks - 1) * self.stages

    def _index(self, turn: Pass) -> int:
        """The position among the passes of its direction."""
        return turn.micro_batch if turn.is_forward else self._mirrored(turn.micro_batch)

    def _phase(self, turn: Pass) -> tuple[bool, bool, bool]:
        """Whether a pass is before the border of taking turns, the first one behind it, or the last forward before."""
        index = self._index(turn)
        border = self._ahead if turn.is_forward else self.micro_batches - self._ahead
        is_first = index == border or (not turn.is_forward and index == 0)
        return index < border, is_first, turn.is_forward and index == border - 1

    def _receives(self, turn: Pass) -> bool:
        """Whether what a later pass of the direction needs is received beside it."""
        index = self._index(turn)
        if index == self.micro_batches - 1:
            return False
        if self.stage != (0 if turn.is_forward else self.stages - 1):
            return True
        aligned = index - (self.stages - 1)  # at the other end of the pipeline
        return aligned >= 0 and self._chunk(aligned) != self.chunks - 1

    def _gathered_chunk(self, turn: Pass) -> int | None:
        """The chunk whose parameters are gathered before a forward pass, at the same time in all stages."""
        aligned = turn.micro_batch + self.stage
        if not turn.is_forward or aligned >= self.micro_batches or self._micro_batch(aligned):
            return None
        chunk = self._chunk(aligned) + 1
        return chunk if 1 < chunk < self.chunks else None

    def _reduced_chunk(self, turn: Pass) -> int | None:
        """The chunk whose gradients are reduced after a backward pass, at the same time in all stages."""
        aligned = self._index(turn) - self.stage
        if turn.is_forward or aligned < 0 or self._micro_batch(aligned) != self.micro_batches // self.chunks - 1:
            return None
        return self._chunk(self._mirrored(aligned))


@dataclasses.dataclass(frozen=True)
class _Role:
    """What decides the calls of a part of a pass, and what decides between captured passes of equal ones."""

    content: Hashable
    preference: tuple[int, ...]
    turn: Pass


def _distance(role: _Role, other: _Role) -> tuple[int, ...]:
    return tuple(abs(first - second) for first, second in zip(role.preference, other.preference))
