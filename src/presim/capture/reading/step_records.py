"""Turn the marks of a script into its steps: STEP records in its log, and what each step read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.capture.reading.log import Log
from presim.capture.script.current_line import is_torch
from presim.capture.steps.loop_tree import Loop, LoopTree
from presim.capture.steps.marks import Event, Mark, read_marks
from presim.capture.steps.program_phases import find_phases
from presim.capture.steps.stopping import Stop, loop_of_steps
from presim.trace.repetition import find_repetition
from presim.trace.schema import Kind, StepFacts

_MANY = 2  # steps from which a loop that the figures leave out is named
_MODEL_EVENTS = (Event.MODEL, Event.REPLAY, Event.BACKWARD, Event.UPDATE)


@dataclasses.dataclass(frozen=True)
class LoggedSteps:
    """The steps of one rank's log."""

    end_records: tuple[int, ...]  # number of records up to the end of each step
    facts: StepFacts


def read_steps(directory: Path, records: NDArray[np.void], end: Stop | None, *, has_ended: bool) -> LoggedSteps:
    """The steps of the log in a directory: by its marks, or by what repeats where the script calls no model.

    Args:
        directory: of the log.
        records: of the log.
        end: the decision about the steps; None if the process was killed.
        has_ended: the script ran to its end, so that its last iterations are complete.
    """
    marks = list(read_marks(directory))
    steps = find_steps(marks, end, has_ended=has_ended)
    if steps.end_records or any(mark.event in _MODEL_EVENTS for mark in marks):
        return steps
    return repeated_steps(records) or steps


def repeated_steps(records: NDArray[np.void]) -> LoggedSteps | None:
    """The steps of a script without modules and updates: what it launches again and again; None: it does not repeat.

    Such are benchmarks of a product or a collective, models written with tensors alone, and servers of parameters:
    their loops leave no marks, but the sequence of their launches repeats.
    """
    launches = np.flatnonzero(np.isin(records["kind"], [int(Kind.WORK), int(Kind.COLLECTIVE)]))
    _, keys = np.unique(records[["work", "kind", "stream"]][launches], return_inverse=True)
    repetition = find_repetition(keys.astype(np.int64))
    if repetition is None:
        return None
    end_records = launches[repetition.ends() - 1] + 1
    begin = int(launches[repetition.start])
    facts = StepFacts(updates=0, trains=False, begin=begin, launches=repetition.period)
    return LoggedSteps(tuple(end_records.tolist()), facts)


def find_steps(marks: Sequence[Mark], end: Stop | None, *, has_ended: bool = False) -> LoggedSteps:
    """The steps that these marks show; arguments as of `read_steps`."""
    tree = LoopTree(marks)
    if has_ended and marks:
        tree.close(marks[-1].records + 1)
    loop = loop_of_steps(tree, end)
    if not (end and end.steps):
        loop.close_updated()
    is_loop = loop is not tree.root
    end_records = loop.step_ends() if is_loop else tree.update_ends  # without a loop, every update ends a step
    end_records = end_records[: end.steps] if end and end.steps else end_records
    # Without a loop of its own, a script begins its first step with itself, not with PyTorch's loop in the update.
    begin = 0 if is_torch(loop.key) else loop.iterations[0].first_record
    facts = _facts(loop, len(end_records)) if is_loop else StepFacts()
    inputs, phases = _inputs(marks, begin, end_records), find_phases(marks, loop.path, begin, end_records)
    is_update_missing = end is not None and end.is_update_missing
    facts = msgspec.structs.replace(
        facts, inputs=inputs, begin=begin, phases=phases, is_update_missing=is_update_missing
    )
    return LoggedSteps(tuple(end_records), facts)


def _facts(loop: Loop, steps: int) -> StepFacts:
    groups = loop.groups()[:steps]
    updates = [sum(iteration.updates for iteration in group) for group in groups]
    return StepFacts(
        loop="" if is_torch(loop.key) else loop.key,  # PyTorch has a loop of its own around each update
        iterations=_typical([len(group) for group in groups]),
        updates=_typical(updates),
        trains=loop.is_training,
        other_loops=_other_loops(loop),
    )


def _other_loops(loop: Loop) -> tuple[tuple[str, int], ...]:
    """Loops beside that of the steps or one around it that repeat training steps of their own, and how many."""
    counts: list[tuple[str, int]] = []
    while loop.outer is not None:
        neighbours = [inner for inner in loop.outer.loops.values() if inner is not loop and inner.is_training]
        counts += [(inner.key, steps) for inner in neighbours if (steps := _updating_steps(inner)) >= _MANY]
        loop = loop.outer
    return tuple(counts)


def _updating_steps(loop: Loop) -> int:
    """Steps of the loop, or of the one within it that has most."""
    return max([len(loop.groups()) if loop.updates else 0, *map(_updating_steps, loop.loops.values())])


def _typical(counts: Sequence[int]) -> int:
    """The most frequent count; of several, the one of the latest step."""
    return max(reversed(counts), key=counts.count) if counts else 0


def _inputs(marks: Sequence[Mark], begin: int, end_records: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Tokens and samples of each step; ``begin``: number of records before the first."""
    last_reset = max((index for index, mark in enumerate(marks) if mark.event is Event.RESET), default=-1)
    inputs = [mark for mark in marks[last_reset + 1 :] if mark.event is Event.INPUT and mark.records >= begin]
    sums = np.zeros((len(end_records), 2), np.int64)
    steps = np.searchsorted(np.asarray(end_records), [mark.records for mark in inputs], "right")
    for step, mark in zip(steps.tolist(), inputs):
        if step < len(end_records):
            sums[step] += mark.first, mark.second
    return tuple((int(tokens), int(samples)) for tokens, samples in sums)


def with_steps(log: Log, steps: LoggedSteps, *, cut: bool) -> Log:
    """The log with one STEP record at the end of each step instead of those of optimizers.

    ``cut``: leave out what follows the last step, because the script was stopped there.
    """
    records = log.records
    end_records = [min(end, len(records)) for end in steps.end_records]
    marked = [end for end in end_records if end and records["kind"][end - 1] == Kind.STEP]
    stays = records["kind"] != Kind.STEP
    stays[np.array(marked, np.int64) - 1] = True
    if cut and end_records:
        stays[end_records[-1] :] = False
    added = np.array([end for end in end_records if not end or records["kind"][end - 1] != Kind.STEP], np.int64)
    positions = np.cumsum(np.concatenate([[0], stays]))[added]
    result = np.insert(records[stays], positions, _step_records(records, added))
    is_step = result["kind"] == Kind.STEP
    result["object"][is_step] = np.arange(int(is_step.sum()))
    return dataclasses.replace(log, records=result)


def _step_records(records: NDArray[np.void], end_records: NDArray[np.int64]) -> NDArray[np.void]:
    """STEP records behind these numbers of records, without host time of their own."""
    added = np.zeros(len(end_records), records.dtype)
    added["kind"] = Kind.STEP
    for field in ("work", "op", "scope"):
        added[field] = -1
    if len(end_records):
        added["cpu_ns"] = records["cpu_ns"][np.maximum(end_records - 1, 0)]
    return added
