"""Parse ``--ranks``: which ranks to capture."""

from __future__ import annotations

import dataclasses
import re

from presim.errors import InputError

MAX_PROCESSES = 256  # processes that may run at once on one machine


@dataclasses.dataclass(frozen=True)
class Checks:
    """How many ranks to run and compare with the captured ones."""

    count: int | None = None  # beside the first replica; None: all ranks of a small world, a sample of a larger one
    seconds: float = 20.0  # start no further comparisons after this time


@dataclasses.dataclass(frozen=True)
class Selection:
    """The chosen ranks, ascending; None: presim finds the distinct ones."""

    ranks: tuple[int, ...] | None = None
    checks: Checks = dataclasses.field(default_factory=Checks)


def select(text: str, world_size: int, checks: Checks | None = None) -> Selection:
    """Parse ``auto``, ``all``, or ranks and ranges: ``0,8,16-23``, ``0:128:16`` (end excluded).

    Raises:
        InputError: the text is none of these, or names a rank outside the world.
    """
    if text == "auto":
        return Selection(None, checks or Checks())
    ranks = (
        tuple(range(world_size))
        if text == "all"
        else tuple(sorted({rank for part in text.split(",") for rank in _part(part, text)}))
    )
    if ranks[-1] >= world_size:
        hint = f"choose from 0 to {world_size - 1}" if world_size > 1 else "it has only rank 0; --nodes makes it larger"
        raise InputError(f"rank {ranks[-1]} is not in a world of {world_size}: {hint}")
    if len(ranks) > MAX_PROCESSES:
        raise InputError(
            f"--ranks {text} starts {len(ranks)} processes at once, at most {MAX_PROCESSES} can run; use --ranks auto, "
            "which runs only ranks that differ, or name fewer"
        )
    return Selection(ranks)


def _part(part: str, text: str) -> range:
    if match := re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part):
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if first <= last:
            return range(first, last + 1)
    elif match := re.fullmatch(r"\s*(\d+):(\d+)(?::(\d+))?\s*", part):
        first, end, step = int(match.group(1)), int(match.group(2)), int(match.group(3) or 1)
        if first < end and step > 0:
            return range(first, end, step)
    raise InputError(f"--ranks {text}: {part!r} is not a rank; use auto, all, or ranks and ranges such as 0,8,16-23")
