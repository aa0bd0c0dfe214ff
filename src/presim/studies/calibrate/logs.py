"""Step times of a run: a number of seconds, or a log of a trainer."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

from presim.errors import InputError
from presim.files import read_text

_UNITS = {"ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6}
_TIME = re.compile(
    r"(?:step[ _-]?time|iteration[ _-]?time|elapsed time per iteration|time[ _/]per[ _/](?:step|iteration)"
    r"|iter[ _]?time|time/step)\s*(?:\((?P<before>ms|s|sec|seconds|milliseconds|us)\))?"
    r"\s*[:=]\s*(?P<value>\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"\s*(?P<after>ms|milliseconds|seconds|sec|s|us)?\b",
    re.IGNORECASE,
)


def step_times_s(run: str) -> list[float]:
    """Measured step times in seconds: the number itself, or all step times in a log.

    >>> step_times_s("1.25")
    [1.25]

    Raises:
        InputError: it is neither a number nor a log that names step times.
    """
    try:
        times_s = [float(run)]
    except ValueError:
        times_s = _read_log(Path(run))
    if bad := [time for time in times_s if not 0 < time < 1e5]:
        raise InputError(f"{run} says that a step took {bad[0]:g} s; a step takes more than 0 s and less than a day")
    return times_s


def _read_log(path: Path) -> list[float]:
    text = read_text(path, "name a profile, a log with step times, or seconds as a number", errors="replace")
    times_s = []
    for match in _TIME.finditer(text):
        unit = (match["before"] or match["after"] or "s").lower()
        times_s.append(float(match["value"]) * _UNITS[unit])
    if not times_s:
        raise InputError(
            f"{path} names no step times, such as `step_time: 1.25 s` or `elapsed time per iteration (ms): 1250`; give "
            "the seconds of a step as a number instead"
        )
    return times_s


def median_step_times_s(times: list[float]) -> tuple[float, float | None]:
    """Median step times in seconds of the even and of the odd steps; None for the latter if there is one step.

    The first three steps of more than eight are left out.
    """
    steady = times[3:] if len(times) > 8 else times
    odd_steps = steady[1::2]
    return statistics.median(steady[::2]), statistics.median(odd_steps) if odd_steps else None
