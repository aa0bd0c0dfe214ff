"""The loops of a script as a tree, with what happened in each iteration, and the loop whose iterations are its steps.

The step is the iteration of the outermost loop that repeats the script's work. Which loop that is, the marks tell:

* A loop within it takes its place if each of that loop's iterations, or each few of them, ends with an update of the
  parameters, all updates happen in it, and the outer loop calls no model before it: epochs of batches.
* Otherwise the inner loop is a part of the step: micro-batches that accumulate gradients, a critic's updates before the
  generator's, mini-batches after a rollout.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Iterable, Iterator

from presim.capture.script.current_line import is_own
from presim.capture.steps.marks import Event, Mark

_CALLS = (Event.MODEL, Event.REPLAY, Event.BACKWARD)  # a program without modules has backward passes alone
_REPEATED = 3  # iterations that make a loop that does not train one of steps
_EXAMINED = 8  # iterations of an outer loop that are looked at
_PRECEDING = 0.05  # share of an iteration's records that make work before an inner loop a part of the step


@dataclasses.dataclass(slots=True)
class Iteration:
    """One iteration of a loop; of the whole script, for the tree's root."""

    first_record: int
    starts_loop: bool = True  # the loop has just been entered
    end_record: int | None = None  # where the next iteration or other code begins; None: it goes on
    last_mark_record: int = 0  # of its last mark
    leaves_loop: bool = False  # its end is that of the loop: other code may have run before it was seen
    updates: int = 0
    update_end_record: int = 0  # behind the STEP record of the last update
    first_call_record: int | None = None  # of the first call of a model
    follows_change: bool = False  # when it first called the model, parameters had changed since the last call


class Loop:
    """A loop, wherever it is executed within its outer loop; the root is the script."""

    def __init__(self, key: str, outer: Loop | None) -> None:
        self.key, self.outer = key, outer
        self.loops: dict[str, Loop] = {}  # the loops within it
        self.iterations: list[Iteration] = []
        self.executions = 0  # how often the loop has been entered
        self.updates = 0  # of parameters, in all iterations
        self.direct_updates = 0  # in the loop, not in one within it
        self.changes = 0  # iterations before which parameters had changed
        self.is_training = False  # an iteration has a backward pass or an update
        self.calls = 0  # of models, in all iterations
        self._groups: list[list[Iteration]] = [[]]  # the last one is not complete
        self._grouped = 0  # iterations in them
        self._is_group_end: Callable[[int], bool | None] = self._always

    @property
    def path(self) -> tuple[str, ...]:
        """Keys of the loops around it and its own, the outermost first; empty for the root."""
        return (*self.outer.path, self.key) if self.outer else ()

    def groups(self) -> list[list[Iteration]]:
        """The iterations that have ended, in the groups that are steps.

        A group ends with an update. Without updates by optimizers it ends where the parameters have changed
        otherwise, and without those, too, each iteration is a group.
        """
        rule = self._at_update if self.updates else self._before_change if self.changes else self._always
        if rule != self._is_group_end:
            self._groups, self._grouped, self._is_group_end = [[]], 0, rule
        while self._grouped < len(self.iterations) and (is_end := rule(self._grouped)) is not None:
            self._groups[-1].append(self.iterations[self._grouped])
            self._grouped += 1
            if is_end:
                self._groups.append([])
        return self._groups[:-1]

    def _always(self, number: int) -> bool | None:
        """Whether an iteration ends a group; None if it has not ended itself."""
        return None if self.iterations[number].end_record is None else True

    def _at_update(self, number: int) -> bool | None:
        return None if self.iterations[number].end_record is None else self.iterations[number].updates > 0

    def _before_change(self, number: int) -> bool | None:
        """None for the last iteration, too: whether parameters change is seen in the next one."""
        return self.iterations[number + 1].follows_change if number + 1 < len(self.iterations) else None

    def close_updated(self) -> None:
        """End an iteration that the script did not live to end, if it has had its updates: it failed after them."""
        iteration, groups = self.iterations[-1], self.groups()
        usual = sum(former.updates for former in groups[-1]) if groups else 1
        if iteration.end_record is None and iteration.updates >= usual > 0:
            iteration.end_record = iteration.update_end_record

    def step_ends(self) -> list[int]:
        """The record at which each step ends: behind its last update, else where the next iteration begins."""
        usual_tail = self._usual_tail()
        return [group[-1].update_end_record or _end_record(group[-1], usual_tail) for group in self.groups()]

    def _usual_tail(self) -> int | None:
        """Most records that followed the last mark of an iteration before the next iteration; None: none ended so."""
        tails = (
            iteration.end_record - iteration.last_mark_record
            for iteration in self.iterations
            if iteration.end_record is not None and not iteration.leaves_loop
        )
        return max(tails, default=None)


def _end_record(iteration: Iteration, usual_tail: int | None) -> int:
    """The record at which an iteration ends.

    That the script has left the loop is seen at the next mark only, so the last iteration ends after as many records
    behind its last mark as others do: a benchmark's loop does not contain what the script copies or imports after it.
    """
    end_record = iteration.end_record or 0
    if not iteration.leaves_loop or usual_tail is None:
        return end_record
    return min(end_record, iteration.last_mark_record + usual_tail)


class LoopTree:
    """Built from the marks of a script in their order."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self.root = Loop("", None)
        self.root.iterations.append(Iteration(0))
        self.update_ends: list[int] = []  # behind the STEP record of each update
        self._open = [self.root]  # the loops around the last mark
        self._gradients: list[Loop] = []  # the loops around the last backward pass that no update has followed
        for mark in marks:
            self.add(mark)

    def add(self, mark: Mark) -> Loop | None:
        """Add the next mark; returns the outermost loop that it shows in another iteration, if any."""
        advanced = self._move(mark)
        for loop in (*self._open, *self._loops_of_gradients(mark)):
            _count(loop, loop.iterations[-1], mark)
        if mark.event is Event.UPDATE and not mark.second:
            self.update_ends.append(mark.records + 1)
        return advanced

    def _loops_of_gradients(self, mark: Mark) -> list[Loop]:
        """The loops that an update comes too late for: those left with gradients that they usually update with.

        Accumulation by remainder leaves some at the end of an epoch, and scripts update once more behind it.
        """
        if mark.event is Event.BACKWARD:
            self._gradients = self._open.copy()
        if mark.event is not Event.UPDATE or mark.second:
            return []
        self._open[-1].direct_updates += 1
        loops, self._gradients = self._gradients, []
        return [loop for loop in loops if loop not in self._open] if loops and loops[-1].direct_updates else []

    def _move(self, mark: Mark) -> Loop | None:
        nest, changed = mark.position.nest, mark.position.changed
        stays = changed < len(nest) and not mark.position.is_entered and len(self._open) > changed + 1
        advanced = self._open[changed + 1] if stays else None
        for loop in self._open[changed + 1 :]:
            loop.iterations[-1].end_record = mark.records
            loop.iterations[-1].leaves_loop = loop is not advanced
        del self._open[changed + 1 :]
        for level, key in enumerate(nest[changed:], changed):
            loop = self._open[-1].loops.setdefault(key, Loop(key, self._open[-1]))
            starts_loop = not (advanced and level == changed)
            loop.iterations.append(Iteration(mark.records, starts_loop))
            loop.executions += starts_loop
            self._open.append(loop)
        return advanced

    def close(self, records: int) -> None:
        """The script has ended by itself after this many records."""
        for loop in self._open:
            loop.iterations[-1].end_record = records
            loop.iterations[-1].leaves_loop = True

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

    def calling_loop(self) -> Loop:
        """The loop of the author's own code whose iterations are the steps of a script that does not train.

        It is the outermost one that calls models and has repeated, or one within it that makes all of its calls; the
        root if there is none. The loops of packages, such as those that generate tokens, are parts of a step.
        """
        loop = self.root
        while inner := _inner_calling_loop(loop):
            loop = inner
        return loop if len(loop.groups()) >= _REPEATED else self.root


def _inner_calling_loop(loop: Loop) -> Loop | None:
    """The loop of the author's code within that takes this one's place in a script that does not train."""
    has_repeated = loop.outer is not None and len(loop.groups()) >= _REPEATED
    candidates = [
        inner
        for inner in loop.loops.values()
        if inner.calls
        and is_own(inner.key.rpartition(":")[0])
        and (not has_repeated or (inner.calls == loop.calls and len(inner.groups()) >= 2 * inner.executions))
    ]
    return max(candidates, key=lambda inner: inner.calls) if candidates else None


def _count(loop: Loop, iteration: Iteration, mark: Mark) -> None:
    """Count a mark in the iteration of a loop."""
    iteration.last_mark_record = mark.records
    if mark.event in _CALLS and iteration.first_call_record is None:
        iteration.first_call_record = mark.records
        iteration.follows_change = mark.event is Event.MODEL and bool(mark.second)
        loop.changes += iteration.follows_change
    if mark.event is Event.UPDATE and not mark.second:
        iteration.updates += 1
        iteration.update_end_record = mark.records + 1
        loop.updates += 1
    loop.calls += mark.event in _CALLS
    if mark.event in (Event.UPDATE, Event.BACKWARD) or (mark.event is Event.REPLAY and mark.first):
        loop.is_training = True


def _inner_step_loop(loop: Loop, is_over: bool) -> Loop | None:
    """The loop within that takes this one's place."""
    candidates = [inner for inner in _training_loops(loop) if len(inner.iterations) > 1 or loop.outer is None]
    if not candidates:
        return None
    inner = max(candidates, key=lambda candidate: (_has_repeated(candidate), candidate.iterations[-1].first_record))
    if loop.outer is None:
        return inner
    if is_over and len(loop.groups()) < 2 <= len(inner.groups()):
        return inner
    if not _ends_in_updates(inner) or inner.updates < loop.updates or (inner.updates == 0 and loop.updates > 0):
        return None
    return None if _calls_before(loop, inner) else inner


def _has_repeated(loop: Loop) -> bool:
    """Whether a loop or one within it has had several steps. An epoch that only runs batches is not seen to repeat."""
    return len(loop.groups()) > 1 or any(_has_repeated(inner) for inner in _training_loops(loop))


def _ends_in_updates(loop: Loop) -> bool:
    """Whether each execution of a loop, or of one that it runs without other work, has several steps."""
    if len(loop.groups()) >= 2 * loop.executions:
        return True
    return any(inner.updates == loop.updates and _ends_in_updates(inner) for inner in _training_loops(loop))


def _training_loops(loop: Loop) -> Iterator[Loop]:
    """The loops directly within that train; those with updates by optimizers, if there are any."""
    training = [inner for inner in loop.loops.values() if inner.is_training]
    yield from [inner for inner in training if inner.updates] or training


def _calls_before(loop: Loop, inner: Loop) -> bool:
    """Whether a relevant part of the outer loop's work is calls of a model before the inner loop begins."""
    preceding = total = 0
    outer_iterations = loop.iterations[-_EXAMINED:]
    starts = [
        iteration.first_record for iteration in _since(inner, outer_iterations[0].first_record) if iteration.starts_loop
    ]
    latest = inner.iterations[-1].end_record or inner.iterations[-1].first_record
    for iteration in outer_iterations:
        end = iteration.end_record if iteration.end_record is not None else latest
        begin = iteration.first_call_record if iteration.first_call_record is not None else end
        start = next((start for start in starts if iteration.first_record <= start < max(end, begin + 1)), end)
        preceding += max(0, start - begin)
        total += max(0, end - begin)
    return preceding > _PRECEDING * total


def _since(loop: Loop, record: int) -> list[Iteration]:
    """The iterations of a loop that began at a record or later."""
    return loop.iterations[bisect.bisect_left(loop.iterations, record, key=lambda iteration: iteration.first_record) :]
