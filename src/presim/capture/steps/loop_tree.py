"""The loops of a script as a tree, with what happened in each iteration, and the loop whose iterations are its steps.

The step is the iteration of the outermost loop that repeats the script's work. Which loop that is, the marks tell:

* A loop within it takes its place if each of that loop's iterations, or each few of them, ends with an update of the
  parameters, all updates happen in it, and the outer loop calls no model before it: epochs of batches.
* Otherwise the inner loop is a part of the step: micro-batches that accumulate gradients, a critic's updates before the
  generator's, mini-batches after a rollout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from presim.capture.steps.marks import Event, Mark

_CALLS = (Event.MODEL, Event.REPLAY, Event.BACKWARD)  # a program without modules has backward passes alone
_PRECEDING = 0.05  # share of an iteration's records that make work before an inner loop a part of the step


@dataclasses.dataclass
class Iteration:
    """One iteration of a loop; of the whole script, for the tree's root."""

    first_record: int
    starts_loop: bool = True  # the loop has just been entered
    end_record: int | None = None  # where the next iteration or other code begins; None: it goes on
    updates: int = 0
    update_end_record: int = 0  # behind the STEP record of the last update
    first_call_record: int | None = None  # of the first call of a model
    follows_change: bool = False  # when it first called the model, parameters had changed since the last call
    is_training: bool = False  # it has a backward pass or an update


class Loop:
    """A loop, wherever it is executed within its outer loop; the root is the script."""

    def __init__(self, key: str, outer: Loop | None) -> None:
        self.key, self.outer = key, outer
        self.loops: dict[str, Loop] = {}  # the loops within it
        self.iterations: list[Iteration] = []

    @property
    def path(self) -> tuple[str, ...]:
        """Keys of the loops around it and its own, the outermost first; empty for the root."""
        return (*self.outer.path, self.key) if self.outer else ()

    @property
    def updates(self) -> int:
        """Updates of parameters in all iterations."""
        return sum(iteration.updates for iteration in self.iterations)

    @property
    def is_training(self) -> bool:
        """Whether an iteration has a backward pass or an update."""
        return any(iteration.is_training for iteration in self.iterations)

    @property
    def executions(self) -> int:
        """How often the loop has been entered."""
        return sum(iteration.starts_loop for iteration in self.iterations)

    def groups(self) -> list[list[Iteration]]:
        """The iterations that have ended, in the groups that are steps.

        A group ends with an update. Without updates by optimizers it ends where the parameters have changed
        otherwise, and without those, too, each iteration is a group.
        """
        ended = [iteration for iteration in self.iterations if iteration.end_record is not None]
        if self.updates:
            is_end = [iteration.updates > 0 for iteration in ended]
        elif any(iteration.follows_change for iteration in self.iterations):
            following = [*self.iterations[1 : len(ended) + 1], None][: len(ended)]
            is_end = [after is None or after.follows_change for after in following]
        else:
            is_end = [True] * len(ended)
        groups: list[list[Iteration]] = [[]]
        for iteration, closes_group in zip(ended, is_end):
            groups[-1].append(iteration)
            if closes_group:
                groups.append([])
        return groups[:-1]

    def close_updated(self) -> None:
        """End an iteration that the script did not live to end, if it has had its updates: it failed after them."""
        iteration, groups = self.iterations[-1], self.groups()
        usual = sum(former.updates for former in groups[-1]) if groups else 1
        if iteration.end_record is None and iteration.updates >= usual > 0:
            iteration.end_record = iteration.update_end_record

    def step_ends(self) -> list[int]:
        """The record at which each step ends: behind its last update, else where the next iteration begins."""
        return [group[-1].update_end_record or (group[-1].end_record or 0) for group in self.groups()]


class LoopTree:
    """Built from the marks of a script in their order."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self.root = Loop("", None)
        self.root.iterations.append(Iteration(0))
        self.update_ends: list[int] = []  # behind the STEP record of each update
        self._open = [self.root]  # the loops around the last mark
        for mark in marks:
            self.add(mark)

    def add(self, mark: Mark) -> Loop | None:
        """Add the next mark; returns the outermost loop that it shows in another iteration, if any."""
        advanced = self._move(mark)
        for loop in self._open:
            _count(loop.iterations[-1], mark)
        if mark.event is Event.UPDATE and not mark.second:
            self.update_ends.append(mark.records + 1)
        return advanced

    def _move(self, mark: Mark) -> Loop | None:
        nest, changed = mark.position.nest, mark.position.changed
        for loop in self._open[changed + 1 :]:
            loop.iterations[-1].end_record = mark.records
        stays = changed < len(nest) and not mark.position.is_entered and len(self._open) > changed + 1
        advanced = self._open[changed + 1] if stays else None
        del self._open[changed + 1 :]
        for level, key in enumerate(nest[changed:], changed):
            loop = self._open[-1].loops.setdefault(key, Loop(key, self._open[-1]))
            loop.iterations.append(Iteration(mark.records, starts_loop=not (advanced and level == changed)))
            self._open.append(loop)
        return advanced

    def close(self, records: int) -> None:
        """The script has ended by itself after this many records."""
        for loop in self._open:
            loop.iterations[-1].end_record = records

    def find(self, path: tuple[str, ...]) -> Loop | None:
        """The loop of a path, as `Loop.path` gives it."""
        loop: Loop | None = self.root
        for key in path:
            loop = loop.loops.get(key) if loop else None
        return loop

    def step_loop(self, *, is_over: bool = False) -> Loop:
        """The loop whose iterations are steps; the root if there is none.

        ``is_over``: no further marks follow. A loop that has not repeated then gives way to one within it that has.
        """
        loop = self.root
        while inner := _inner_step_loop(loop, is_over):
            loop = inner
        return loop


def _count(iteration: Iteration, mark: Mark) -> None:
    if mark.event in _CALLS and iteration.first_call_record is None:
        iteration.first_call_record = mark.records
        iteration.follows_change = mark.event is Event.MODEL and bool(mark.second)
    if mark.event is Event.UPDATE and not mark.second:
        iteration.updates += 1
        iteration.update_end_record = mark.records + 1
    if mark.event in (Event.UPDATE, Event.BACKWARD) or (mark.event is Event.REPLAY and mark.first):
        iteration.is_training = True


def _inner_step_loop(loop: Loop, is_over: bool) -> Loop | None:
    """The loop within that takes this one's place."""
    candidates = [inner for inner in _training_loops(loop) if len(inner.iterations) > 1 or loop.outer is None]
    if not candidates:
        return None
    inner = max(candidates, key=lambda candidate: (len(candidate.groups()) > 1, candidate.iterations[-1].first_record))
    if loop.outer is None:
        return inner
    if is_over and len(loop.groups()) < 2 <= len(inner.groups()):
        return inner
    ends_in_updates = len(inner.groups()) >= 2 * inner.executions
    if not ends_in_updates or inner.updates < loop.updates or (inner.updates == 0 and loop.updates > 0):
        return None
    return None if _calls_before(loop, inner) else inner


def _training_loops(loop: Loop) -> Iterator[Loop]:
    """The loops directly within that train; those with updates by optimizers, if there are any."""
    training = [inner for inner in loop.loops.values() if inner.is_training]
    yield from [inner for inner in training if inner.updates] or training


def _calls_before(loop: Loop, inner: Loop) -> bool:
    """Whether a relevant part of the outer loop's work is calls of a model before the inner loop begins."""
    preceding = total = 0
    starts = [iteration.first_record for iteration in inner.iterations if iteration.starts_loop]
    latest = inner.iterations[-1].end_record or inner.iterations[-1].first_record
    for iteration in loop.iterations:
        end = iteration.end_record if iteration.end_record is not None else latest
        begin = iteration.first_call_record if iteration.first_call_record is not None else end
        start = next((start for start in starts if iteration.first_record <= start < max(end, begin + 1)), end)
        preceding += max(0, start - begin)
        total += max(0, end - begin)
    return preceding > _PRECEDING * total
