"""Where the calls of a stage come from whose steps have other passes before the first backward pass."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.pass_laws import law_positions
from presim.composition.replan.pass_order import Pass, PassOrder
from presim.composition.replan.passes import StepPasses
from presim.errors import InputError

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Captured calls that stay together: a part of a pass, or what lies outside of steps' passes."""

    begin: int
    end: int
    step: int = -1  # -1: outside
    position: int = -1  # of its pass in the order of its step
    part: int = 0  # of its pass


@dataclasses.dataclass(frozen=True, eq=False)
class _Step:
    captured: PassOrder
    captured_passes: tuple[Pass, ...]
    order: PassOrder  # in the new trace
    passes: tuple[Pass, ...]
    parts: int  # of each pass
    first_new_piece: int

    @functools.cached_property
    def captured_laws(self) -> Ints:
        """See `presim.composition.replan.pass_laws.law_positions`: in the captured order."""
        return law_positions(self.captured, self.captured_passes)

    @functools.cached_property
    def laws(self) -> Ints:
        """See `presim.composition.replan.pass_laws.law_positions`: in the new order."""
        return law_positions(self.order, self.passes)


class PassLayout:
    """The order of a stage's calls with other numbers of passes.

    ``contents``: of captured calls, equal for equal calls (`presim.composition.replan.cycles.content_numbers`).
    ``orders``: of each step's passes in the new trace.

    Raises:
        InputError: the captured stage has no pass to repeat.
    """

    repeated = "passes"

    def __init__(self, contents: Ints, steps: Sequence[StepPasses], orders: Sequence[PassOrder]) -> None:
        self._contents = contents
        self._pieces: list[_Piece] = []
        self._new_pieces: list[int] = []  # the captured piece that each copies
        self._steps: list[_Step] = []
        begin = 0
        for step, order in zip(steps, orders, strict=True):
            self._append_outside(begin, int(step.starts[0]))
            self._append_step(step, order)
            begin = step.end
        self._append_outside(begin, len(contents))
        lengths = np.array([piece.end - piece.begin for piece in self._pieces], np.int64)
        self._new_starts = np.concatenate([[0], np.cumsum(lengths[self._new_pieces])])
        self._content_of_piece = [contents[piece.begin : piece.end].tobytes() for piece in self._pieces]
        self._piece_of_call = np.repeat(np.arange(len(self._pieces)), lengths)
        self._last_copy = np.full(len(self._pieces), -1, np.int64)
        self._last_copy[self._new_pieces] = np.arange(len(self._new_pieces))
        self._last_copy = np.maximum.accumulate(self._last_copy)  # of a pass that is left out: the one before

    def _append_outside(self, begin: int, end: int) -> None:
        self._new_pieces.append(len(self._pieces))
        self._pieces.append(_Piece(begin, end))

    def _append_step(self, step: StepPasses, order: PassOrder) -> None:
        number, first = len(self._steps), len(self._pieces)
        captured, passes = tuple(step.order.passes()), tuple(order.passes())
        part_sources = order.part_sources(step.order)
        parts = len(part_sources)
        self._steps.append(_Step(step.order, captured, order, passes, parts, len(self._new_pieces)))
        self._pieces += [
            _Piece(begin, end, number, *divmod(index, parts)) for index, (begin, end) in enumerate(step.parts())
        ]
        positions = {turn: position for position, turn in enumerate(captured)}
        self._new_pieces += [
            first + positions[sources[turn]] * parts + part
            for turn in passes
            for part, sources in enumerate(part_sources)
        ]

    def sources(self) -> tuple[Ints, Ints]:
        """See `presim.composition.replan.copied_calls.CallLayout`."""
        parts = [self._pieces[number] for number in self._new_pieces]
        sources = np.concatenate([np.arange(part.begin, part.end) for part in parts])
        return sources, np.zeros(len(sources), np.int64)

    def places(self) -> Ints:
        """See `presim.composition.replan.copied_calls.CallLayout`."""
        begins = np.array([piece.begin for piece in self._pieces], np.int64)
        copies = self._last_copy[self._piece_of_call]
        offsets = np.arange(len(self._contents)) - begins[self._piece_of_call]
        lengths = np.diff(self._new_starts)[copies]
        places: Ints = self._new_starts[copies] + np.minimum(offsets, np.maximum(lengths - 1, 0))
        return places

    def targets(self, captured: Ints, sources: Ints, shifts: Ints) -> tuple[Ints, Ints]:
        """See `presim.composition.replan.copied_calls.CallLayout`.

        Raises:
            InputError: no law holds for something that a pass refers to.
        """
        return self._all_images(captured, len(sources), self._images), np.empty(0, np.int64)

    def free_places(self, captured: Ints, sources: Ints, shifts: Ints) -> Ints:
        """See `presim.composition.replan.copied_calls.CallLayout`.

        A block whose pass has no such call is freed at the same part of the pass.
        """
        return self._all_images(captured, len(sources), self._images_or_parts)

    def _all_images(self, captured: Ints, num_calls: int, images: Callable[[int, int, int, Ints], Ints]) -> Ints:
        result = np.full(num_calls, -1, np.int64)
        references = functools.lru_cache(maxsize=None)(functools.partial(self._references, captured))
        for new_piece, number in enumerate(self._new_pieces):
            part = result[self._new_starts[new_piece] : self._new_starts[new_piece + 1]]
            for target, rows, calls in references(number):
                part[rows] = images(new_piece, number, target, calls)
        return result

    def _references(self, captured: Ints, number: int) -> list[tuple[int, Ints, Ints]]:
        """By piece that calls of a captured piece refer to: that piece, the calls' places, and what they refer to."""
        piece = self._pieces[number]
        targets = captured[piece.begin : piece.end]
        named = np.flatnonzero(targets >= 0)
        target_pieces = self._piece_of_call[targets[named]]
        order = np.argsort(target_pieces, kind="stable")
        parts = np.split(named[order], np.flatnonzero(np.diff(target_pieces[order])) + 1)
        return [(int(self._piece_of_call[targets[rows[0]]]), rows, targets[rows]) for rows in parts if len(rows)]

    def _images(self, new_piece: int, number: int, target: int, calls: Ints) -> Ints:
        """Where what a copy refers to is in the new trace; ``number``: of the piece that refers to ``target``."""
        images = self._places_of_same(new_piece, number, target, calls)
        if (images < 0).any():
            raise self._refusal(number, int(calls[np.argmin(images)]))
        return images

    def _images_or_parts(self, new_piece: int, number: int, target: int, calls: Ints) -> Ints:
        """As `_images`; where the new trace lacks the call, a place in the same part of the pass."""
        images = self._places_of_same(new_piece, number, target, calls, earliest=new_piece)
        missing = np.flatnonzero(images < 0)
        if len(missing):
            copies = self._copies(new_piece, number, target)
            copy = next((copy for copy in copies if copy >= new_piece), self._as_much_later(new_piece, number, target))
            if copy is None:
                raise self._refusal(number, int(calls[missing[0]]))
            piece, (begin, end) = self._pieces[target], self._new_starts[copy : copy + 2].tolist()
            shares = (calls[missing] - piece.begin) / (piece.end - piece.begin)
            images[missing] = begin + np.minimum((shares * (end - begin)).astype(np.int64), end - begin - 1)
        return images

    def _places_of_same(self, new_piece: int, number: int, target: int, calls: Ints, earliest: int = 0) -> Ints:
        """The places of the same calls, -1 where the pass to refer to has none; ``earliest``: new piece to look at."""
        images = np.full(len(calls), -1, np.int64)
        offsets = calls - self._pieces[target].begin
        for copy in self._copies(new_piece, number, target):
            if copy < earliest:
                continue
            if self._new_pieces[copy] == target:  # most passes are copies of those that they refer to
                return np.where(images < 0, self._new_starts[copy] + offsets, images)
            places = self._same_calls(target, self._new_pieces[copy])[offsets]
            images = np.where((images < 0) & (places >= 0), self._new_starts[copy] + places, images)
            if (images >= 0).all():
                return images
        if self._stays(number, target):
            images = np.where(images < 0, self._new_starts[self._last_copy[target]] + offsets, images)
        return images

    def _copies(self, new_piece: int, number: int, target: int) -> Iterator[int]:
        """The new pieces that a copy may refer to as its piece does to ``target``, the most likely first."""
        piece, target_piece = self._pieces[number], self._pieces[target]
        if piece.step < 0 or piece.step != target_piece.step:
            return
        step = self._steps[piece.step]
        holds = step.captured_laws[piece.position] == target_piece.position
        positions = step.laws[(new_piece - step.first_new_piece) // step.parts, holds]
        for position in dict.fromkeys(positions[positions >= 0].tolist()):
            yield step.first_new_piece + position * step.parts + target_piece.part
        for position in step.order.same_landmarks(step.captured, target_piece.position):
            yield step.first_new_piece + position * step.parts + target_piece.part

    def _as_much_later(self, new_piece: int, number: int, target: int) -> int | None:
        """The new piece as many passes after another as ``target`` is after its captured piece, or the step's last one.

        Where passes of the order lead by number, it is the last one if a law holds that leads behind it, as that of
        forward passes that no further one follows. None: no law holds.
        """
        piece, target_piece = self._pieces[number], self._pieces[target]
        if piece.step < 0 or piece.step != target_piece.step or target < number:
            return None
        step = self._steps[piece.step]
        last = step.first_new_piece + len(step.passes) * step.parts - 1
        if step.order.refers_by_position:
            return min(new_piece + target - number, last)
        return last if (step.captured_laws[piece.position] == target_piece.position).any() else None

    def _stays(self, number: int, target: int) -> bool:
        """Whether a piece may refer to another as it is: outside of passes, and to the first and the last pass."""
        piece, target_piece = self._pieces[number], self._pieces[target]
        if piece.step < 0 or piece.step != target_piece.step:
            return True
        return target_piece.position in (0, len(self._steps[piece.step].captured_passes) - 1)

    def _refusal(self, number: int, call: int) -> InputError:
        return InputError(
            f"passes refer to different things: one that begins after {self._pieces[number].begin:,} calls refers to "
            f"the call after {call:,} by no law that holds with another number of stages; capture the job with the "
            "number of stages that you want"
        )

    def _same_calls(self, first: int, second: int) -> Ints:
        """For each call of a piece, the place of the same one in another piece, -1 for none."""
        return _same_places(self._content_of_piece[first], self._content_of_piece[second])


@functools.lru_cache(maxsize=1024)
def _same_places(contents: bytes, second_contents: bytes) -> Ints:
    """For each of some contents, the place of the same one among others in the same order, -1 for none.

    Passes of one direction are alike but for what the first or the last micro-batch does more, and for messages.
    """
    first, second = (np.frombuffer(part, np.int64) for part in (contents, second_contents))
    if contents == second_contents:
        return np.arange(len(first))
    places = np.full(len(first), -1, np.int64)
    matcher = difflib.SequenceMatcher(None, first.tolist(), second.tolist(), autojunk=False)
    for begin, other_begin, length in matcher.get_matching_blocks():
        places[begin : begin + length] = np.arange(other_begin, other_begin + length)
    return places
