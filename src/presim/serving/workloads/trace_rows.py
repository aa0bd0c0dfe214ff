"""Rows of traces as requests, and the numbers in them; a row that is not understood gives the reason instead."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from presim.system.files import shortened

CHARACTERS = 4  # characters per token of text: a rule of thumb, said in the workload's remarks
_MOST = 1 << 31  # most tokens of one request
_LONGEST_NUMBER = 40  # characters
_LATEST_S = 1e10  # latest time since 1970 or since the start of the trace


@dataclasses.dataclass(frozen=True)
class TraceRequest:
    """A request of a trace."""

    when_s: float  # of one that waits for others: the earliest
    prompt: int  # tokens; where `grows`, those behind the conversation so far
    output: int
    ids: tuple[int, ...] = ()  # of the prompt's blocks
    name: str = ""  # by which others wait for it
    session: str = ""  # its conversation
    after: tuple[str, ...] = ()  # names of the requests after whose end it is sent
    delay_s: float = 0.0  # after the last of them
    grows: bool = False  # whether its prompt has all former turns of its session in front


@dataclasses.dataclass(frozen=True)
class Reading:
    """What was read of a trace."""

    kind: str
    requests: list[TraceRequest]
    skipped: list[str]
    block_tokens: int = 0  # of an id
    remarks: tuple[str, ...] = ()


def whole(row: dict[str, Any], name: str, least: int = 1, limit: int = _MOST) -> int | str:
    """A field's whole number, or why it is none."""
    value = row.get(name)
    exact = number(value)
    if exact is None or exact != int(exact):
        return f"{name} is {shortened(value)}"
    count = int(exact)
    if count > limit:
        return f"{name} is {count}, above {limit}"
    return count if count >= least else f"{name} is {count}, below {least}"


def seconds(row: dict[str, Any], name: str, unit_s: float = 1.0) -> float | str:
    """A field's time in seconds, or why it is none."""
    value = row.get(name)
    time = number(value)
    if time is None or not 0 <= time * unit_s <= _LATEST_S:
        return f"{name} is {shortened(value)}"
    return time * unit_s


def number(value: object) -> float | None:
    """A number, or the text of one; None for anything else, such as true, NaN or a list."""
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER and "_" not in value:
        try:
            value = int(value) if value.strip().isdecimal() else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def lengths(row: dict[str, Any], prompt: str, output: str) -> tuple[int, int] | str:
    """Tokens of a prompt and its output, or why one of them is none."""
    counts = whole(row, prompt), whole(row, output)
    bad = [reason for reason in counts if isinstance(reason, str)]
    return bad[0] if bad else (int(counts[0]), int(counts[1]))


def block_ids(row: dict[str, Any]) -> tuple[int, ...] | str:
    """The ids of a prompt's blocks, or why they are none."""
    ids = row.get("hash_ids")
    if ids is None:
        return ()
    if not isinstance(ids, list) or not all(type(block) is int and 0 <= block < 1 << 63 for block in ids):
        return "hash_ids is not a list of whole numbers"
    return tuple(ids)
