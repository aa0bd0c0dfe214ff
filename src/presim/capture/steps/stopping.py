"""When enough of a script has run: its steps have been seen to repeat, or a bound is reached.

The ranks of a job stop after the same step. The first of those that run together decides, and publishes its decision in
their common folder; another that is ahead by then stops at its next step, and what it has too much is not read.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from presim.capture.script.real_clock import now_ns
from presim.capture.steps.loop_tree import Loop, LoopTree

_FILE = "stop.json"

# A loop of a few quick iterations may be a warm-up or a probe, after which the real one follows. So a loop is left only
# if it goes on, and only after this many records or iterations. Three steps of a large model have as many records.
_LEAST_STEPS = 3
_LEAST_RECORDS = 25_000
_ENOUGH_STEPS = 12
_ENOUGH_S = 10.0  # wall-clock time of steps that are slow to capture, such as those that load much data
# Steps that never repeat, such as batches of different lengths, are captured up to these bounds.
_MOST_STEPS = 24
_MOST_RECORDS = 3_000_000  # 150 MB of log
# How long the first update is awaited: until then, iterations may be micro-batches of one step. The bound is CPU time,
# because a busy machine needs more wall-clock time for the same work. The wall-clock bound is for scripts that wait for
# data. Where a framework's engine sums gradients, only `_MOST_RECORDS` ends the wait.
_MOST_WITHOUT_UPDATE_CPU_S = 120.0
_MOST_WITHOUT_UPDATE_S = 900.0


class Stop(msgspec.Struct, frozen=True):
    """Where the capture of a job ends."""

    steps: int  # after this many; 0: the script ran to its end
    loop: tuple[str, ...] = ()  # path of the loop whose iterations are steps
    is_update_missing: bool = False  # an optimizer was awaited until a bound: iterations may be parts of steps


def loop_of_steps(tree: LoopTree, stop: Stop | None) -> Loop:
    """The loop whose iterations are the steps of a script that has ended; the root without one."""
    if not tree.root.is_training:
        return tree.calling_loop()
    return (tree.find(stop.loop) if stop else None) or tree.step_loop(is_over=True)


class Stopping:
    """Decides after each iteration of a loop whether the script ends here.

    Args:
        steps: bound set by the user; 0: the script runs to its end; None: until its steps repeat.
        decides: whether this rank decides for all.
        folder: the folder that the ranks share.
        digest: digest of the work between two records.
        expects_update: whether the script has an optimizer that may update the parameters.
        sums_gradients: whether a framework's engine updates them after iterations that it counts itself.
    """

    def __init__(
        self,
        steps: int | None,
        decides: bool,
        folder: Path,
        digest: Callable[[int, int], bytes],
        expects_update: Callable[[], bool] = lambda: False,
        sums_gradients: Callable[[], bool] = lambda: False,
    ) -> None:
        self.steps, self.decides = steps, decides
        self._path = folder / _FILE
        self._digest = digest
        self._expects_update = expects_update
        self._sums_gradients = sums_gradients
        self._digests: dict[tuple[int, int], bytes] = {}
        self._begin_s: float | None = None  # monotonic time of the first decision
        self._begin_cpu_s = 0.0  # CPU time of the process by then

    def after_iteration(self, tree: LoopTree, advanced: Loop) -> Stop | None:
        """The decision, now that a loop has begun another iteration; None: the script goes on."""
        if self.steps == 0 or not advanced.is_training:  # such a loop is a part of a step
            return None
        loop = tree.step_loop()
        if loop.path[: len(advanced.path)] != advanced.path or self._awaits_update(tree, loop):
            return None
        end_records = loop.step_ends()
        if self.decides:
            is_missing = self._has_no_update(tree)
            stop = Stop(len(end_records), loop.path, is_missing)
            return self._publish(stop) if self._is_enough(loop, end_records) else None
        published = self.published()
        if published and published.steps and self._has_steps(tree, published):
            return published
        step_limit = self.steps or 2 * _MOST_STEPS  # the rank that decides may be far behind
        return Stop(step_limit, loop.path) if len(end_records) >= step_limit else None

    def after_update(self, tree: LoopTree) -> Stop | None:
        """The decision after an update that lies in no loop: each one end_records a step."""
        if not self.steps or tree.step_loop() is not tree.root or len(tree.update_ends) < self.steps:
            return None
        return self._publish(Stop(len(tree.update_ends))) if self.decides else Stop(self.steps)

    def at_end(self, tree: LoopTree) -> Stop:
        """The loop that was stepped through by a script that ran to its end."""
        published = None if self.decides else self.published()
        if published and tree.find(published.loop):
            return Stop(0, published.loop)
        stop = Stop(0, tree.step_loop(is_over=True).path)
        return self._publish(stop) if self.decides else stop

    def published(self) -> Stop | None:
        """The decision of the rank that decides, if it has ended."""
        with contextlib.suppress(OSError):
            return msgspec.json.decode(self._path.read_bytes(), type=Stop)
        return None

    def _publish(self, stop: Stop) -> Stop:
        temporary = self._path.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # a full disk, which the launcher reports
            temporary.write_bytes(msgspec.json.encode(stop))
            os.replace(temporary, self._path)
        return stop

    def _has_steps(self, tree: LoopTree, stop: Stop) -> bool:
        loop = tree.find(stop.loop)
        return loop is not None and len(loop.step_ends()) >= stop.steps

    def _has_no_update(self, tree: LoopTree) -> bool:
        """Whether no parameters were updated yet and an optimizer may still do it."""
        return not tree.root.updates and not tree.root.changes and self._expects_update()

    def _awaits_update(self, tree: LoopTree, loop: Loop) -> bool:
        """Whether what repeats is a part of a step that an update will end."""
        if not self._has_no_update(tree):
            return False
        if loop.iterations[-1].first_record - loop.iterations[0].first_record >= _MOST_RECORDS:
            return False
        self._begin()
        elapsed_s = now_ns() / 1e9 - (self._begin_s or 0.0)
        is_patient = time.process_time() - self._begin_cpu_s < _MOST_WITHOUT_UPDATE_CPU_S
        return self._sums_gradients() or (is_patient and elapsed_s < _MOST_WITHOUT_UPDATE_S)

    def _begin(self) -> None:
        if self._begin_s is None:
            self._begin_s, self._begin_cpu_s = now_ns() / 1e9, time.process_time()

    def _is_enough(self, loop: Loop, end_records: Sequence[int]) -> bool:
        if self.steps:
            return len(end_records) >= self.steps
        self._begin()
        if len(end_records) < _LEAST_STEPS or not loop.is_training or not _is_at_step(loop):
            return False
        captured = end_records[-1] - loop.iterations[0].first_record
        if len(end_records) >= _MOST_STEPS or captured >= _MOST_RECORDS:
            return True
        is_long = now_ns() / 1e9 - (self._begin_s or 0.0) >= _ENOUGH_S
        is_likely = captured >= _LEAST_RECORDS or len(end_records) >= _ENOUGH_STEPS or is_long
        return is_likely and self._repeats(end_records)

    def _repeats(self, end_records: Sequence[int]) -> bool:
        """Whether steps launch the same again and again, each or several in turn; the first may do more than others.

        More steps must repeat than came before the first that does, or the rare ones among them may be yet to come.
        """
        digests = [self._step_digest(*bounds) for bounds in itertools.pairwise(end_records)]
        stretches = ((period, _periodic_steps(digests, period)) for period in range(1, len(digests) // 2 + 1))
        return any(count >= 2 * period and 2 * count > len(digests) for period, count in stretches)

    def _step_digest(self, start: int, stop: int) -> bytes:
        if (start, stop) not in self._digests:
            self._digests[start, stop] = self._digest(start, stop)
        return self._digests[start, stop]


def _periodic_steps(digests: Sequence[bytes], period: int) -> int:
    """How many of the last steps launch the same as those ``period`` steps before or after them."""
    count = period
    while count < len(digests) and digests[-count - 1] == digests[-count - 1 + period]:
        count += 1
    return count


def _is_at_step(loop: Loop) -> bool:
    """Whether the iteration that has just begun is the first of a step."""
    before = [iteration for iteration in loop.iterations[-2:] if iteration.end_record is not None]
    groups = loop.groups()
    return bool(groups) and bool(before) and groups[-1][-1] is before[-1]
