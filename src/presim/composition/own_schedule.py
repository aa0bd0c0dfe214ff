"""A pipeline schedule of one's own: a file with the passes of each rank, in PyTorch's notation.

A row is a rank, a cell a pass: stage, kind, micro-batch, as in `torch.distributed.pipelining`'s ``_load_csv`` and
``_dump_csv``. Kinds are F (forward), B (backward), and I and W (its two parts: gradients of inputs, of weights). Empty
cells are turns without a pass. Stage s lies on rank s modulo the number of ranks. Messages between stages follow
from the passes: each goes out when its sender has the tensor, and the pass that needs it waits.

    0F0,0F1,0B0,0B1
    1F0,1B0,1F1,1B1
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Sequence
from pathlib import Path

from presim.composition.orders import with_messages
from presim.composition.steps import BACKWARD, FORWARD, INPUT, WEIGHT, Step, rank_of_stage
from presim.errors import InputError
from presim.system.files import read_text

OWN = "own"
_PASS = re.compile(r"(\d{1,5})([FBIW])(\d{1,7})")
_KINDS = {"F": FORWARD, "B": BACKWARD, "I": INPUT, "W": WEIGHT}
_WHOLE = ([FORWARD, BACKWARD], [FORWARD, INPUT, WEIGHT])  # what a stage does with a micro-batch, in order
_SHOWN = 4


def read_passes(path: Path) -> tuple[str, ...]:
    """The rows of a schedule file, one for each rank.

    Raises:
        InputError: it cannot be read, or has no passes.
    """
    lines = [line.strip() for line in read_text(path, "name a file with a schedule").splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{path} has no passes; give a row such as 0F0,0F1,0B0,0B1 for each rank")
    return tuple(lines)


def splits_backward(rows: Sequence[str]) -> bool:
    """Whether a schedule has gradients of weights as passes of their own."""
    return any("W" in row for row in rows)


def orders_of(rows: Sequence[str], ranks: int, chunks: int, micros: int) -> tuple[tuple[Step, ...], ...]:
    """The steps of each rank, with messages.

    Raises:
        InputError: a pass is missing, given twice or on another rank than its stage, or all ranks wait for another.
    """
    if len(rows) != ranks:
        raise InputError(f"the schedule has {len(rows)} rows, and the pipeline {ranks} ranks; give a row for each rank")
    passes = [_parse(row, rank, ranks, ranks * chunks, micros) for rank, row in enumerate(rows)]
    for rank, steps in enumerate(passes):
        _check_complete(steps, rank, ranks, chunks, micros)
    try:
        return with_messages(passes, ranks * chunks, functools.partial(rank_of_stage, OWN, ranks))
    except ValueError as error:
        raise InputError(f"the schedule deadlocks: {_stuck(passes, ranks * chunks)}") from error


def _parse(row: str, rank: int, ranks: int, stages: int, micros: int) -> list[Step | None]:
    steps: list[Step | None] = []
    for cell in map(str.strip, row.split(",")):
        if not cell:
            steps.append(None)
            continue
        match = _PASS.fullmatch(cell)
        if match is None:
            raise InputError(
                f"rank {rank} of the schedule has {cell!r}; a pass is stage, F, B, I or W, micro-batch: 0F3"
            )
        stage, micro = int(match[1]), int(match[3])
        if stage >= stages or stage % ranks != rank:
            its_stages = ", ".join(map(str, range(rank, stages, ranks)))
            raise InputError(f"rank {rank} of the schedule has {cell}; of {stages} stages it has {its_stages}")
        if micro >= micros:
            raise InputError(f"rank {rank} of the schedule has {cell}, and a step has micro-batches 0 to {micros - 1}")
        steps.append(Step(_KINDS[match[2]], stage, micro))
    return steps


def _check_complete(steps: Sequence[Step | None], rank: int, ranks: int, chunks: int, micros: int) -> None:
    kinds: dict[tuple[int, int], list[str]] = collections.defaultdict(list)
    for step in steps:
        if step is not None:
            kinds[step.stage, step.micro].append(step.kind)
    wrong = [
        f"{stage} of micro-batch {micro} ({', then '.join(kinds[stage, micro]) or 'none'})"
        for stage in range(rank, ranks * chunks, ranks)
        for micro in range(micros)
        if kinds[stage, micro] not in _WHOLE
    ]
    if wrong:
        further = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise InputError(
            f"rank {rank} of the schedule has not one forward pass and then B, or I and W, for stage "
            f"{', '.join(wrong[:_SHOWN])}{further}"
        )


def _stuck(passes: Sequence[Sequence[Step | None]], stages: int) -> str:
    """Which pass each rank cannot begin, and what it waits for."""
    done: set[tuple[int, int, bool]] = set()
    pending = [collections.deque(step for step in steps if step is not None) for steps in passes]
    while any(steps and not _lacks(steps[0], stages, done) for steps in pending):
        for steps in pending:
            while steps and not _lacks(steps[0], stages, done):
                step = steps.popleft()
                if step.kind != WEIGHT:
                    done.add((step.stage, step.micro, step.kind != FORWARD))
    waits = [
        f"rank {rank} waits at {_name(steps[0])} for {_lacks(steps[0], stages, done)}"
        for rank, steps in enumerate(pending)
        if steps
    ]
    return "; ".join(waits[:_SHOWN]) + (f"; and {len(waits) - _SHOWN} more" if len(waits) > _SHOWN else "")


def _lacks(step: Step, stages: int, done: set[tuple[int, int, bool]]) -> str:
    """The pass that has to come first; empty if it came."""
    backward = step.kind != FORWARD
    before = step.stage + 1 if backward else step.stage - 1
    if step.kind == WEIGHT or not 0 <= before < stages or (before, step.micro, backward) in done:
        return ""
    return f"{before}{'B' if backward else 'F'}{step.micro}"


def _name(step: Step) -> str:
    letter = next(letter for letter, kind in _KINDS.items() if kind == step.kind)
    return f"{step.stage}{letter}{step.micro}"
