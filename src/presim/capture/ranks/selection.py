"""Parses ``--ranks``: which ranks to capture."""

from __future__ import annotations

import dataclasses
import re

from presim.errors import InputError

MOST_TOGETHER = 256  # processes that one machine is asked to run at once


@dataclasses.dataclass(frozen=True)
class Checks:
    """How many ranks to run and compare with those that are captured."""

    count: int | None = None  # beside the first replica; None: all of a small world, of a larger one a sample
    seconds: float = 60.0  # after so long no further ranks are started to be compared


@dataclasses.dataclass(frozen=True)
class Selection:
    """Chosen ranks, ascending; None: presim finds out which differ."""

    ranks: tuple[int, ...] | None = None
    checks: Checks = dataclasses.field(default_factory=Checks)


def select(text: str, world_size: int, checks: Checks | None = None) -> Selection:
    """``auto``, ``all``, or ranks and ranges: ``0,8,16-23``, ``0:128:16`` (end excluded).

    Raises:
        InputError: it is none of these, or names a rank that the world has not.
    """
    if text == "auto":
        return Selection(None, checks or Checks())
    ranks = (
        tuple(range(world_size))
        if text == "all"
        else tuple(sorted({rank for part in text.split(",") for rank in _part(part, text)}))
    )
    if ranks[-1] >= world_size:
        hint = (
            f"choose among 0 to {world_size - 1}" if world_size > 1 else "it has rank 0 alone; --nodes makes it larger"
        )
        raise InputError(f"rank {ranks[-1]} is not in a world of {world_size}: {hint}")
    if len(ranks) > MOST_TOGETHER:
        raise InputError(
            f"--ranks {text} are {len(ranks)} processes at once, more than {MOST_TOGETHER}; leave the choice to "
            "--ranks auto, which runs those that differ, or name fewer"
        )
    return Selection(ranks)


def _part(part: str, text: str) -> range:
    if found := re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part):
        first, last = int(found.group(1)), int(found.group(2) or found.group(1))
        if first <= last:
            return range(first, last + 1)
    elif found := re.fullmatch(r"\s*(\d+):(\d+)(?::(\d+))?\s*", part):
        first, end, step = int(found.group(1)), int(found.group(2)), int(found.group(3) or 1)
        if first < end and step > 0:
            return range(first, end, step)
    raise InputError(f"--ranks {text}: {part!r} is no rank; use auto, all, or ranks and ranges such as 0,8,16-23")
