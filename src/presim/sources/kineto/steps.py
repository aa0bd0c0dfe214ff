"""Which steps of a profile are imported, and how long they took there."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence

from presim.errors import InputError
from presim.sources.kineto.events import Event, Profile


@dataclasses.dataclass(frozen=True)
class Window:
    """Steps that follow each other: their numbers, their windows on the host, and the time that they stand for."""

    numbers: tuple[int, ...]
    start_ns: int
    ends_ns: tuple[int, ...]
    measured_ns: int  # the median after the first: from the end of the work of the step before to that of its own
    tid: int | str  # of the host's thread that steps

    @property
    def end_ns(self) -> int:
        """Where the last step ends."""
        return self.ends_ns[-1]


def choose(profile: Profile, wanted: Sequence[int] | None) -> Window:
    """The steps asked for, else the last of those recorded that follow each other and have GPU work.

    Raises:
        InputError: there are no steps, or not these, or they have no GPU work.
    """
    if not profile.steps:
        raise InputError(
            f"{profile.path} has no ProfilerStep annotation: call prof.step() after each step of the loop, with at "
            "least one active step"
        )
    numbers = sorted(profile.steps)
    absent = [number for number in wanted or () if number not in profile.steps]
    if absent:
        raise InputError(f"{profile.path} has no step {absent[0]}; it has {_listed(numbers)}")
    launched = _launch_times(profile)
    busy = [number for number in wanted or numbers if _ends(profile, number, launched)[1]]
    if not busy or (wanted is not None and len(busy) < len(wanted)):
        which = f"step {next(number for number in wanted if number not in busy)}" if wanted else _listed(numbers)
        raise InputError(
            f"{profile.path} has no GPU work in {which}; record it with ProfilerActivity.CUDA, on a GPU"
            + (", or choose another --step" if wanted else "")
        )
    first = len(busy) - 1
    while first and busy[first - 1] == busy[first] - 1:
        first -= 1
    return _window(profile, busy[first:], launched)


def _window(profile: Profile, numbers: Sequence[int], launched: tuple[list[int], list[int]]) -> Window:
    times = [_measured(profile, number, launched) for number in numbers]
    rest = sorted(times[1:] or times)
    events = [profile.steps[number] for number in numbers]
    ends = tuple(event.end_ns for event in events)
    return Window(tuple(numbers), events[0].start_ns, ends, rest[(len(rest) - 1) // 2], events[0].tid)


def _measured(profile: Profile, number: int, launched: tuple[list[int], list[int]]) -> int:
    """How long a step took on the device; on the host where the step before was not recorded."""
    before, mine = _ends(profile, number, launched)
    event = profile.steps[number]
    follows = number - 1 in profile.steps and before and mine
    return max(mine - before if follows else event.end_ns - event.start_ns, 1)


def _ends(profile: Profile, number: int, launched: tuple[list[int], list[int]]) -> tuple[int, int]:
    """When the last work launched before the step, and in it, ended; 0: there is none."""
    event, (starts, ends) = profile.steps[number], launched
    first, last = bisect.bisect_left(starts, event.start_ns), bisect.bisect_left(starts, event.end_ns)
    return max(ends[:first], default=0), max(ends[first:last], default=0)


def _launch_times(profile: Profile) -> tuple[list[int], list[int]]:
    """The starts of calls, and when the work that each of them launched ended; 0: it launched none."""
    ends: dict[int, int] = {}
    for event in profile.work:
        correlation = event.number("correlation")
        ends[correlation] = max(ends.get(correlation, 0), event.end_ns)
    return [call.start_ns for call in profile.calls], [
        ends.get(call.number("correlation"), 0) for call in profile.calls
    ]


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    return f"step{'s' if len(numbers) > 1 else ''} {shown}"


def within(events: Sequence[Event], window: Window) -> list[Event]:
    """The events that begin in the steps, on their host."""
    return [event for event in events if window.start_ns <= event.start_ns < window.end_ns]
