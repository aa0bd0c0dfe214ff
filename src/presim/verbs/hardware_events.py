"""A run under hardware that fails for a while: slow GPUs, hot nodes, flapping links, from a file (``--events``).

    steps = 1000
    [[events]]                # a hot node from 100 s on, for ten minutes
    straggler = "node3=0.8"
    from_s = 100
    for_s = 600
    [[events]]                # a link that is down for 0.1 s of each 5 s from step 500 on
    fail = "leaf0-spine0"
    from_step = 500
    for_s = 0.1
    every_s = 5

Each set of events that hold together is simulated once, as a steady step. The run advances through a step at the rate
of the set that holds: half of a slow step's time does half of a step, whatever part of it that is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from presim.errors import InputError
from presim.evaluation.what_if import Changes, changes_of
from presim.result.hardware_events import HardwareEvents, HardwareState
from presim.system.files import FormatError, convert, decode_toml, read_text
from presim.system.files.field_bounds import Seconds, bounds
from presim.units import seconds
from presim.units.quantities import POSITIVE_SECONDS, STEPS

_MOST_STRETCHES = 100_000
_Positive = Annotated[float, bounds(POSITIVE_SECONDS)]
StepTime = Callable[[Changes], float]  # seconds of a steady step


class _Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    straggler: str = ""
    fail: str = ""
    bandwidth: str = ""
    from_s: Seconds | None = None
    from_step: Annotated[int, bounds(STEPS)] | None = None
    for_s: _Positive | None = None  # None: to the end
    every_s: _Positive | None = None  # None: once

    @property
    def words(self) -> str:
        """The event as the option of the same name has it."""
        return next(f"{name} {text}" for name in ("straggler", "fail", "bandwidth") if (text := getattr(self, name)))


class EventFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run of some steps, and what happens to its hardware."""

    steps: Annotated[int, bounds(dataclasses.replace(STEPS, least=1))]
    events: tuple[_Event, ...]


@dataclasses.dataclass
class _Clock:
    """How far the run is: time, steps done, and by event when it began."""

    now_s: float = 0.0
    done_steps: float = 0.0
    begun_s: dict[int, float] = dataclasses.field(default_factory=dict)


def read_events(path: Path) -> EventFile:
    """The events of a file.

    Raises:
        InputError: it cannot be read, or an event says too little or too much.
    """
    try:
        file = convert(decode_toml(read_text(path, "name a file of hardware events")), EventFile)
    except FormatError as error:
        keys = "docs/guide/hardware-events.md has its keys"
        raise InputError(f"{path} is no file of hardware events: {error}; {keys}") from error
    for number, event in enumerate(file.events, start=1):
        _check(event, f"{path}, event {number}")
    return file


def _check(event: _Event, name: str) -> None:
    kinds = [kind for kind in ("straggler", "fail", "bandwidth") if getattr(event, kind)]
    if len(kinds) != 1:
        raise InputError(f"{name} has {len(kinds)} of straggler, fail and bandwidth; give one")
    if event.from_s is not None and event.from_step is not None:
        raise InputError(f"{name} has from_s and from_step; leave one of them out")
    if event.every_s is not None and (event.for_s is None or event.for_s >= event.every_s):
        raise InputError(f"{name} repeats every {event.every_s:g} s; give a shorter for_s")
    _changes([event])


def _changes(events: Sequence[_Event]) -> Changes:
    return changes_of(
        [event.bandwidth for event in events if event.bandwidth],
        [event.straggler for event in events if event.straggler],
        (),
        [event.fail for event in events if event.fail],
    )


def run_under_events(file: EventFile, step_time: StepTime) -> HardwareEvents:
    """The run of a file; ``step_time``: seconds of a step with changes of the hardware.

    Raises:
        InputError: the run has too many stretches, or the job cannot run under a set of events.
    """
    clock = _Clock()
    states: dict[tuple[int, ...], list[float]] = {}
    healthy_s = step_time(Changes())
    times: dict[tuple[int, ...], float] = {(): healthy_s}
    for _ in range(_MOST_STRETCHES):
        active = tuple(index for index, event in enumerate(file.events) if _holds(index, event, clock))
        if active not in times:
            times[active] = step_time(_changes([file.events[index] for index in active]))
        step_s = times[active]
        left_s = (file.steps - clock.done_steps) * step_s
        stretch_s = min([left_s, *(_until_change_s(i, event, clock, step_s) for i, event in enumerate(file.events))])
        spent = states.setdefault(active, [0.0, 0.0])
        spent[0] += stretch_s
        spent[1] += stretch_s / step_s
        clock.now_s += stretch_s
        clock.done_steps += stretch_s / step_s
        if stretch_s >= left_s:
            break
    else:
        raise InputError(
            f"the events change the hardware more than {_MOST_STRETCHES:,} times in {file.steps:,} steps; give fewer "
            "steps, or a longer every_s"
        )
    rows = [
        HardwareState([file.events[index].words for index in active], times[active], spent_s, steps)
        for active, (spent_s, steps) in states.items()
        if spent_s > 0
    ]
    return HardwareEvents(file.steps, file.steps * healthy_s, clock.now_s, rows)


def _begin_s(index: int, event: _Event, clock: _Clock) -> float | None:
    """When an event began; None if it has not yet."""
    if event.from_step is None:
        return event.from_s or 0.0 if clock.now_s >= (event.from_s or 0.0) - 1e-9 else None
    if clock.done_steps >= event.from_step - 1e-9:
        return clock.begun_s.setdefault(index, clock.now_s)
    return None


def _holds(index: int, event: _Event, clock: _Clock) -> bool:
    begin_s = _begin_s(index, event, clock)
    if begin_s is None:
        return False
    since_s = clock.now_s - begin_s
    if event.every_s is not None:
        since_s = _within_period_s(since_s, event.every_s)
    return event.for_s is None or since_s < event.for_s - 1e-9


def _within_period_s(since_s: float, every_s: float) -> float:
    """Time since the last repetition began; a moment before the next one counts as its beginning."""
    return max(since_s - math.floor(since_s / every_s + 1e-9) * every_s, 0.0)


def _until_change_s(index: int, event: _Event, clock: _Clock, step_s: float) -> float:
    """Time until an event begins or ends, if a step takes ``step_s`` until then; infinite if it does neither."""
    begin_s = _begin_s(index, event, clock)
    if begin_s is None:
        if event.from_step is not None:
            return (event.from_step - clock.done_steps) * step_s
        return (event.from_s or 0.0) - clock.now_s
    if event.for_s is None:
        return math.inf
    since_s = clock.now_s - begin_s
    if event.every_s is None:
        return event.for_s - since_s if since_s < event.for_s - 1e-9 else math.inf
    within_s = _within_period_s(since_s, event.every_s)
    return (event.for_s if within_s < event.for_s - 1e-9 else event.every_s) - within_s


def sentence(run: HardwareEvents) -> str:
    """The run in a sentence."""
    parts = [
        f"{' and '.join(state.events) or 'healthy'} for {seconds(state.seconds)} at {seconds(state.step_time_s)} a step"
        for state in run.states
    ]
    lost_s = run.total_s - run.healthy_s
    return (
        f"{run.steps:,} steps take {seconds(run.total_s)} with the hardware events, {seconds(lost_s)} "
        f"({lost_s / run.healthy_s:.1%}) longer than without: {'; '.join(parts)}."
    )
