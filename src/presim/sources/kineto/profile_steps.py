"""Select the steps of a profile to import, and measure their duration."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence

from presim.errors import InputError
from presim.sources.kineto.events import Event, Profile


@dataclasses.dataclass(frozen=True)
class Window:
    """Consecutive steps: numbers, host time windows, and measured step time."""

    numbers: tuple[int, ...]
    start_ns: int
    ends_ns: tuple[int, ...]
    # median step time after the first: from the end of the previous step's device work to the end of its own
    measured_ns: int
    tid: int | str  # host thread that runs the steps

    @property
    def end_ns(self) -> int:
        """End of the last step."""
        return self.ends_ns[-1]


def choose_window(profile: Profile, requested_numbers: Sequence[int] | None) -> Window:
    """The wanted steps, else the last consecutive recorded steps with GPU work.

    Raises:
        InputError: the steps are missing or have no GPU work.
    """
    if not profile.steps:
        raise InputError(
            f"{profile.path} has no GPU work: record it with ProfilerActivity.CUDA, on a GPU, and call prof.step() "
            "after each step of the loop"
        )
    numbers = sorted(profile.steps)
    absent = [number for number in requested_numbers or () if number not in profile.steps]
    if absent:
        raise InputError(f"{profile.path} has no step {absent[0]}; it has {_list_numbers(numbers)}")
    launched = _launch_times(profile)
    busy = [number for number in requested_numbers or numbers if _work_ends_ns(profile, number, launched)[1]]
    if not busy or (requested_numbers is not None and len(busy) < len(requested_numbers)):
        which = (
            f"step {next(number for number in requested_numbers if number not in busy)}"
            if requested_numbers
            else _list_numbers(numbers)
        )
        raise InputError(
            f"{profile.path} has no GPU work in {which}; record it with ProfilerActivity.CUDA, on a GPU"
            + (", or choose another --step" if requested_numbers else "")
        )
    first = len(busy) - 1
    while first and busy[first - 1] == busy[first] - 1:
        first -= 1
    return _window(profile, busy[first:], launched)


def _window(profile: Profile, numbers: Sequence[int], launched: tuple[list[int], list[int]]) -> Window:
    times = [_duration_ns(profile, number, launched) for number in numbers]
    later_times = sorted(times[1:] or times)
    events = [profile.steps[number] for number in numbers]
    ends_ns = tuple(event.end_ns for event in events)
    return Window(tuple(numbers), events[0].start_ns, ends_ns, later_times[(len(later_times) - 1) // 2], events[0].tid)


def _duration_ns(profile: Profile, number: int, launched: tuple[list[int], list[int]]) -> int:
    """Duration of a step on the device; on the host if the previous step was not recorded."""
    previous_end_ns, end_ns = _work_ends_ns(profile, number, launched)
    event = profile.steps[number]
    follows = number - 1 in profile.steps and previous_end_ns and end_ns
    return max(end_ns - previous_end_ns if follows else event.end_ns - event.start_ns, 1)


def _work_ends_ns(profile: Profile, number: int, launched: tuple[list[int], list[int]]) -> tuple[int, int]:
    """End of the last work launched before the step, and of the last launched in it; 0 if none."""
    event, (starts_ns, ends_ns) = profile.steps[number], launched
    first, last = bisect.bisect_left(starts_ns, event.start_ns), bisect.bisect_left(starts_ns, event.end_ns)
    return max(ends_ns[:first], default=0), max(ends_ns[first:last], default=0)


def _launch_times(profile: Profile) -> tuple[list[int], list[int]]:
    """Start times of calls, and the end of the work launched by each; 0 if none."""
    end_ns_by_correlation: dict[int, int] = {}
    for event in profile.work:
        correlation = event.number("correlation")
        end_ns_by_correlation[correlation] = max(end_ns_by_correlation.get(correlation, 0), event.end_ns)
    return [call.start_ns for call in profile.calls], [
        end_ns_by_correlation.get(call.number("correlation"), 0) for call in profile.calls
    ]


def _list_numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    return f"step{'s' if len(numbers) > 1 else ''} {shown}"


def events_within(events: Sequence[Event], window: Window) -> list[Event]:
    """Events on the host thread that start within the steps."""
    return [event for event in events if window.start_ns <= event.start_ns < window.end_ns]
