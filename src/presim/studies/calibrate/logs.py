"""Step times of a run: a number of seconds, or a log of a trainer."""

from __future__ import annotations

import statistics
from pathlib import Path

from presim.errors import InputError
from presim.studies.calibrate.log_lines import StepWork, times_in
from presim.system.files import read_text


def step_times_s(run: str, work: StepWork | None = None) -> list[float]:
    """Measured step times in seconds: the number itself, or all step times in a log.

    ``work``: of a step of the logged job, for logs that have rates only.

    >>> step_times_s("1.25")
    [1.25]

    Raises:
        InputError: it is neither a number nor a log that names step times.
    """
    try:
        times_s = [float(run)]
    except ValueError:
        times_s = _read_log(Path(run), work or StepWork())
    if bad := [time for time in times_s if not 0 < time < 1e5]:
        raise InputError(f"{run} says that a step took {bad[0]:g} s; a step takes more than 0 s and less than a day")
    return times_s


def _read_log(path: Path, work: StepWork) -> list[float]:
    text = read_text(path, "name a profile, a log with step times, or seconds as a number", errors="replace")
    times_s, needed = times_in(text, work)
    if needed:
        raise InputError(
            f"{path} logs a rate, and the captured job does not know the {needed}; give the seconds of a step as a "
            "number"
        )
    if not times_s:
        raise InputError(
            f"{path} names no step times, such as `step_time: 1.25 s`, `elapsed time per iteration (ms): 1250` or "
            "torchtitan's `tps: 7,214`; give the seconds of a step as a number instead"
        )
    return times_s


def median_step_times_s(times: list[float]) -> tuple[float, float | None]:
    """Median step times in seconds of the even and of the odd steps; None for the latter if there is one step.

    The first three steps of more than eight are left out.
    """
    steady = times[3:] if len(times) > 8 else times
    odd_steps = steady[1::2]
    return statistics.median(steady[::2]), statistics.median(odd_steps) if odd_steps else None
