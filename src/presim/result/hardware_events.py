"""A run whose hardware slows down or fails for a while."""

from __future__ import annotations

from typing import Annotated

import msgspec

from presim.system.files.field_docs import doc


class HardwareState(msgspec.Struct, frozen=True):
    """A set of events that hold at the same time."""

    events: Annotated[
        list[str], doc("What holds, as `--straggler`, `--fail` and `--bandwidth` name it; empty: nothing.")
    ]
    step_time_s: Annotated[float, doc("Seconds of a step while it holds.")]
    seconds: Annotated[float, doc("Time of the run during which it holds.")]
    steps: Annotated[float, doc("Steps done meanwhile.")]


class HardwareEvents(msgspec.Struct, frozen=True):
    """A run of several steps with failing hardware (`--events`)."""

    steps: Annotated[int, doc("Steps of the run.")]
    healthy_s: Annotated[float, doc("Seconds of the run if nothing fails.")]
    total_s: Annotated[float, doc("Seconds of the run with the events.")]
    states: Annotated[list[HardwareState], doc("The sets of events that held, in order of their first time.")]
