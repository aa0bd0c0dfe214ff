"""A pipeline schedule of one's own: the passes of each rank, where stages lie, and what waits for what.

A row is a rank, a cell a pass: stage, kind, micro-batch, as in `torch.distributed.pipelining`'s ``_load_csv`` and
``_dump_csv``. Kinds are F (forward), B (backward), and I and W (its two parts: gradients of inputs, of weights). Empty
cells are turns without a pass. A stage lies on the rank whose row has its passes. Messages between stages follow from
the passes: each goes out when its sender has the tensor, and the pass that needs it waits. A row with an arrow is a
further dependency: the pass behind it begins after the one before it has ended.

    0F0,0F1,0B0,0B1
    1F0,1B0,1F1,1B1
    1B0 -> 0F1
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

from presim.composition.orders import with_messages
from presim.composition.pass_dependencies import Dependencies, Dependency, Pass, name_of
from presim.composition.pipeline_steps import BACKWARD, FORWARD, INPUT, WEIGHT, PipelineStep
from presim.errors import InputError

OWN = "own"
_ARROW = "->"
_PASS = re.compile(r"(\d{1,5})([FBIW])(\d{1,7})")
_KINDS = {"F": FORWARD, "B": BACKWARD, "I": INPUT, "W": WEIGHT}
_WHOLE = ([FORWARD, BACKWARD], [FORWARD, INPUT, WEIGHT])  # what a stage does with a micro-batch, in order
_SHOWN = 4


@dataclasses.dataclass(frozen=True)
class OwnSchedule:
    """A schedule that was read and is complete."""

    passes: tuple[tuple[PipelineStep | None, ...], ...]  # of each rank
    stage_ranks: tuple[int, ...]  # where each stage lies
    dependencies: tuple[Dependency, ...]

    def orders(self) -> tuple[tuple[PipelineStep, ...], ...]:
        """The steps of each rank, with messages.

        Raises:
            InputError: all ranks wait for another.
        """
        try:
            return with_messages(self.passes, len(self.stage_ranks), self.stage_ranks.__getitem__, self.dependencies)
        except ValueError as error:
            raise InputError(f"the schedule deadlocks: {_stuck(self)}") from error


def splits_backward(rows: Sequence[str]) -> bool:
    """Whether a schedule has gradients of weights as passes of their own."""
    return any("W" in row for row in rows)


def stage_ranks(rows: Sequence[str]) -> tuple[int, ...]:
    """The rank of each stage, of rows that `parse` takes."""
    return _placement([row for row in rows if _ARROW not in row])


def pairs_of_ranks(rows: Sequence[str]) -> set[tuple[int, int]]:
    """Ranks that exchange tensors or signals, of rows that `parse` takes."""
    placement = stage_ranks(rows)
    pairs = set(itertools.pairwise(placement))
    for row in rows:
        if _ARROW in row:
            source, target = (int(match[1]) for match in _PASS.finditer(row))
            pairs.add((placement[source], placement[target]))
    return {(first, second) for first, second in pairs if first != second}


def parse(rows: Sequence[str], ranks: int, stages: int, micros: int) -> OwnSchedule:
    """The schedule of rows.

    Raises:
        InputError: a pass is missing or given twice, a stage lies on two ranks, or a dependency names no pass.
    """
    rank_rows = [row for row in rows if _ARROW not in row]
    if len(rank_rows) != ranks:
        raise InputError(
            f"the schedule has {len(rank_rows)} rows, and the pipeline {ranks} ranks; give a row for each rank"
        )
    passes = tuple(tuple(_passes(row, rank, stages, micros)) for rank, row in enumerate(rank_rows))
    placement = _placement(rank_rows)
    if len(placement) < stages:
        raise InputError(
            f"the schedule has no passes of stage {len(placement)}, and pipeline x virtual is {stages} stages; give "
            "each stage passes"
        )
    for rank, steps in enumerate(passes):
        rank_stages = [stage for stage, stage_rank in enumerate(placement) if stage_rank == rank]
        if not rank_stages:
            raise InputError(f"rank {rank} of the schedule has no passes; give each rank a stage")
        _check_complete(steps, rank, rank_stages, micros)
    planned = {name_of(step) for steps in passes for step in steps if step is not None}
    dependencies = tuple(_dependency(row, planned) for row in rows if _ARROW in row)
    return OwnSchedule(passes, placement, dependencies)


def _passes(row: str, rank: int, stages: int, micros: int) -> Iterator[PipelineStep | None]:
    for cell in map(str.strip, row.split(",")):
        if not cell:
            yield None
            continue
        step = _read(cell, f"rank {rank} of the schedule")
        if step.stage >= stages:
            raise InputError(f"rank {rank} of the schedule has {cell}, and there are stages 0 to {stages - 1}")
        if step.micro >= micros:
            raise InputError(f"rank {rank} of the schedule has {cell}, and a step has micro-batches 0 to {micros - 1}")
        yield step


def _read(cell: str, owner: str) -> PipelineStep:
    match = _PASS.fullmatch(cell)
    if match is None:
        raise InputError(f"{owner} has {cell!r}; a pass is stage, F, B, I or W, micro-batch: 0F3")
    return PipelineStep(_KINDS[match[2]], int(match[1]), int(match[3]))


def _placement(rank_rows: Sequence[str]) -> tuple[int, ...]:
    """The rank of each stage up to the last that has passes without a gap.

    Raises:
        InputError: a stage has passes on two ranks.
    """
    rank_by_stage: dict[int, int] = {}
    for rank, row in enumerate(rank_rows):
        for match in _PASS.finditer(row):
            stage_rank = rank_by_stage.setdefault(int(match[1]), rank)
            if stage_rank != rank:
                raise InputError(
                    f"stage {match[1]} of the schedule has passes on rank {stage_rank} and on rank {rank}; a stage "
                    "lies on one rank"
                )
    missing = next(stage for stage in range(len(rank_by_stage) + 1) if stage not in rank_by_stage)
    return tuple(rank_by_stage[stage] for stage in range(missing))


def _dependency(row: str, planned: set[Pass]) -> Dependency:
    cells = [cell.strip() for cell in row.split(_ARROW)]
    if len(cells) != 2:
        raise InputError(f"the schedule has the dependency {row!r}; give two passes with an arrow: 1B0 -> 0F1")
    source, target = (name_of(_read(cell, f"the dependency {row!r}")) for cell in cells)
    for name, cell in ((source, cells[0]), (target, cells[1])):
        if name not in planned:
            raise InputError(f"the dependency {row!r} names {cell}, which is in no row of the schedule")
    return source, target


def _check_complete(steps: Sequence[PipelineStep | None], rank: int, stages: Sequence[int], micros: int) -> None:
    kinds: dict[tuple[int, int], list[str]] = collections.defaultdict(list)
    for step in steps:
        if step is not None:
            kinds[step.stage, step.micro].append(step.kind)
    wrong = [
        f"{stage} of micro-batch {micro} ({', then '.join(kinds[stage, micro]) or 'none'})"
        for stage in stages
        for micro in range(micros)
        if kinds[stage, micro] not in _WHOLE
    ]
    if wrong:
        further = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise InputError(
            f"rank {rank} of the schedule has not one forward pass and then B, or I and W, for stage "
            f"{', '.join(wrong[:_SHOWN])}{further}"
        )


def _stuck(schedule: OwnSchedule) -> str:
    """Which pass each rank cannot begin, and what it waits for."""
    stages = len(schedule.stage_ranks)
    dependencies = Dependencies(schedule.dependencies, schedule.stage_ranks.__getitem__)
    done: set[tuple[int, int, bool]] = set()
    pending = [collections.deque(step for step in steps if step is not None) for steps in schedule.passes]
    while any(steps and not _lacks(steps[0], stages, done, dependencies) for steps in pending):
        for steps in pending:
            while steps and not _lacks(steps[0], stages, done, dependencies):
                step = steps.popleft()
                dependencies.end(step)
                if step.kind != WEIGHT:
                    done.add((step.stage, step.micro, step.kind != FORWARD))
    waits = [
        f"rank {rank} waits at {_written(name_of(steps[0]))} for {_lacks(steps[0], stages, done, dependencies)}"
        for rank, steps in enumerate(pending)
        if steps
    ]
    return "; ".join(waits[:_SHOWN]) + (f"; and {len(waits) - _SHOWN} more" if len(waits) > _SHOWN else "")


def _lacks(step: PipelineStep, stages: int, done: set[tuple[int, int, bool]], dependencies: Dependencies) -> str:
    """The pass that has to come first; empty if it came."""
    backward = step.kind != FORWARD
    before = step.stage + 1 if backward else step.stage - 1
    if step.kind != WEIGHT and 0 <= before < stages and (before, step.micro, backward) not in done:
        return f"{before}{'B' if backward else 'F'}{step.micro}"
    missing = dependencies.missing(step)
    return _written(missing) if missing else ""


def _written(name: Pass) -> str:
    kind, stage, micro = name
    return f"{stage}{next(letter for letter, word in _KINDS.items() if word == kind)}{micro}"
