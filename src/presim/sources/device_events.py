"""What recordings of other profilers have in common: rows of a database become a profile as PyTorch's would be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from presim.errors import InputError
from presim.sources.kineto.events import WHOLE, Event, Profile

STEP = re.compile(r"^(?:profiler|train(?:ing)?)?[ _]?(?:step|iteration|iter)[ _#:=]*(\d{1,18})$", re.IGNORECASE)
_MOST_NS = 86_400 * 10**9


def event(name: object, category: str, thread: object, start: object, end: object, args: dict[str, Any]) -> Event:
    """An event, whose times are ns of any clock.

    Raises:
        InputError: it ends before it starts, or a time is none.
    """
    if not (type(start) is int and type(end) is int and 0 <= start <= end <= start + _MOST_NS):
        raise InputError(f"{name!r} lasts from {start!r} to {end!r} ns, which is no time; record the profile again")
    return Event(str(name), category, thread if isinstance(thread, int) else 0, start, end, args)


def profile_of(
    path: Path,
    device: str,
    calls: Sequence[Event],
    work: Sequence[Event],
    syncs: Sequence[Event],
    ranges: Sequence[Event],
    command: str,
) -> Profile:
    """A rank's profile from its events.

    ``ranges``: annotations, of which those named like a step are steps. ``command``: that records such a file.

    Raises:
        InputError: it has no device work, or work without a launch.
    """
    if not work or not calls:
        missing = "work of a GPU" if not work else "API calls, which tell when work was launched"
        raise InputError(f"{path} has no {missing}; record the run with `{command}`")
    first = min(item.start_ns for item in (*calls, *work, *ranges))
    shifted_events = [
        [_earlier(item, first) for item in sorted(items, key=_order)] for items in (calls, work, syncs, ranges)
    ]
    steps = {int(match[1]): item for item in shifted_events[3] if (match := STEP.match(item.name))}
    end = max(item.end_ns for item in shifted_events[0])
    single_step = {0: Event(WHOLE, "", shifted_events[0][0].tid, shifted_events[0][0].start_ns, end, {})}
    return Profile(
        path=path,
        rank=None,
        world_size=None,
        device=device,
        groups=[],
        written_by={},
        steps=steps or single_step,
        calls=shifted_events[0],
        work=shifted_events[1],
        syncs=shifted_events[2],
        operators={},
        updates=[],
    )


def _order(item: Event) -> tuple[int, int]:
    return item.start_ns, item.end_ns


def _earlier(item: Event, by_ns: int) -> Event:
    return Event(item.name, item.cat, item.tid, item.start_ns - by_ns, item.end_ns - by_ns, item.args)


def check_single_gpu(path: Path, gpus: set[int], tool: str) -> None:
    """Raise if a file holds the work of several GPUs: a rank has one."""
    if len(gpus) > 1:
        raise InputError(f"{path} has work of {len(gpus)} GPUs; record each rank into a file of its own ({tool})")
