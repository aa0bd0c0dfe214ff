"""The phases of a step: its inner loops, and what lies outside of them up to each optimizer step.

A loop with a single iteration is part of what is around it. A loop that does nothing but run another one gives way to
that: mini-batches are a phase, not the epochs over them. Optimizers that step one after the other share a phase.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

from presim.capture.script.current_line import is_torch
from presim.capture.steps.marks import Event, Mark
from presim.trace.schema import StepPhase

_CALLS = (Event.MODEL, Event.REPLAY, Event.BACKWARD)
_Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Part:
    """Successive marks of one phase."""

    marks: list[Mark]
    kind: str  # as of `StepPhase`
    line: str
    runs: int = 1

    @property
    def has_calls(self) -> bool:
        return any(mark.event in _CALLS for mark in self.marks)

    @property
    def has_update(self) -> bool:
        return any(map(_is_update, self.marks))


def find_phases(marks: Sequence[Mark], loop: _Path, begin: int, end_records: Sequence[int]) -> tuple[StepPhase, ...]:
    """The phases of all steps, with ends in records of the log; none if each step is a single phase.

    Args:
        marks: of the script.
        loop: path of the loop whose iterations are steps; empty: none.
        begin: number of records before the first step.
        end_records: number of records up to the end of each step.
    """
    phases: list[StepPhase] = []
    records = list(itertools.accumulate((mark.records for mark in marks), max))  # ascending already, but for threads
    for step, (start, end) in enumerate(itertools.pairwise([begin, *end_records])):
        step_marks = marks[bisect.bisect_left(records, start) : bisect.bisect_left(records, end)]
        parts = _join_parts(_parts(step_marks, loop))
        stops = [*(part.marks[0].records for part in parts[1:]), end]
        phases += [StepPhase(step, stop, part.kind, part.line, part.runs) for part, stop in zip(parts, stops)]
    later = [phase for phase in phases if phase.step] or phases  # the first step may do more than others
    has_loop = any(phase.kind == "loop" for phase in later)
    is_divided = len({phase.step for phase in later}) < len(later)
    is_own_loop = any(not is_torch(key) for key in loop[-1:])  # PyTorch has a loop of its own around each update
    has_kinds = is_own_loop and len({phase.line for phase in later}) > 1  # steps of different kinds
    return tuple(phases) if has_loop or is_divided or has_kinds else ()


def _parts(marks: Iterable[Mark], outer: _Path) -> Iterator[_Part]:
    """Marks by inner loop; those outside of inner loops up to each update."""
    for inner, group in itertools.groupby(marks, lambda mark: _inner_loop(mark, outer)):
        members = list(group)
        runs = _count_runs(members, len(inner))
        if len(inner) <= len(_common_prefix(inner, outer)):
            yield from _up_to_updates(members)
        elif runs <= 1 or _only_runs_inner_loop(members, inner, runs):
            yield from _parts(members, inner)
        else:
            yield _Part(members, "loop", inner[-1], runs)


def _inner_loop(mark: Mark, outer: _Path) -> _Path:
    """Path of the loop directly within the outer one, or beside a part of it, that a mark lies in."""
    shared = len(_common_prefix(mark.position.nest, outer))
    return mark.position.nest[: shared + 1]


def _common_prefix(path: _Path, other: _Path) -> _Path:
    return tuple(key for key, _ in itertools.takewhile(lambda keys: keys[0] == keys[1], zip(path, other)))


def _count_runs(marks: Sequence[Mark], level: int) -> int:
    """Iterations of a loop of this level, the outermost being 1, in which all marks lie."""
    return max(1, sum(mark.position.changed < level for mark in marks))


def _only_runs_inner_loop(marks: Sequence[Mark], path: _Path, runs: int) -> bool:
    """Whether a loop with so many iterations does nothing but run another loop, several times in each."""
    calls = [mark for mark in marks if mark.event in _CALLS or _is_update(mark)]
    inner = {mark.position.nest[: len(path) + 1] for mark in calls}
    within = [mark for mark in marks if mark.position.nest[: len(path) + 1] in inner]
    return len(inner) == 1 and path not in inner and _count_runs(within, len(path) + 1) > runs


def _up_to_updates(marks: Sequence[Mark]) -> Iterator[_Part]:
    update_ends = [index + 1 for index, mark in enumerate(marks) if _is_update(mark)]
    for start, end in itertools.pairwise(sorted({0, *update_ends, len(marks)})):
        yield _outside_loops(list(marks[start:end]))


def _outside_loops(marks: list[Mark]) -> _Part:
    """A phase that is no loop, named after its first update, else its first call of a model."""
    update = next(filter(_is_update, marks), None)
    call = next((mark for mark in marks if mark.event in _CALLS), marks[0])
    return _Part(marks, "update" if update else "call", (update or call).position.line)


def _is_update(mark: Mark) -> bool:
    return mark.event is Event.UPDATE and not mark.second


def _join_parts(parts: Iterable[_Part]) -> list[_Part]:
    """Parts without calls or updates are of the next one, updates without calls of the last one outside of loops."""
    joined: list[_Part] = []
    leading: list[Mark] = []
    for part in parts:
        if not part.has_calls and not part.has_update:
            leading += part.marks
            continue
        part = dataclasses.replace(part, marks=leading + part.marks)
        leading = []
        former = joined[-1] if joined else None
        if former and former.kind == "call" and (part.kind != "loop" or not part.has_calls):
            joined[-1] = _outside_loops(former.marks + part.marks)
        elif former and former.kind == "update" and not part.has_calls:
            joined[-1] = dataclasses.replace(former, marks=former.marks + part.marks)
        elif former and (former.kind, former.line) == (part.kind, part.line):
            joined[-1] = dataclasses.replace(former, marks=former.marks + part.marks, runs=former.runs + part.runs)
        else:
            joined.append(part)
    return joined
