"""Step times in the progress bars of tqdm, as Hugging Face Trainer and Lightning print them.

A bar's rate is no step time: Lightning's is an average since the first step, warm-up included, Trainer's a moving
average. The bar's clock is: between two lines of a bar lie so many steps and so many whole seconds. Where the rate is
an average, steps times rate give the clock with more digits.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence

_BAR = re.compile(
    r"(?P<label>[^|\]\r\n]*?)\s*\d+%\|[^|\r\n]*\|\s*(?P<step>\d+)/(?P<total>\d+) "
    r"\[(?P<elapsed>(?:\d+:)?\d+:\d\d)<[^\],]*,\s*(?P<rate>\d+(?:\.\d+)?)\s*(?P<unit>s/it|it/s)\b"
)
# Bars beside those of steps: of datasets, checkpoints and passes without an update.
_OTHER_WORK = re.compile(
    r"load|map|filter|download|generat|validat|sanity|eval|test|predict|tokeniz|saving|fetch", re.IGNORECASE
)
_WARM_UP = 3  # steps that count nowhere, if there are more than eight
_LEAST_RATIO = 30  # of a stretch to a digit of the clock: 3 % are uncertain


@dataclasses.dataclass(frozen=True)
class _Line:
    """A line of a bar: steps and seconds so far, and the seconds of a step that it shows."""

    step: int
    elapsed_s: float
    shown_s: float
    digit: float  # share of ``shown_s`` by which its last digit rounds it


def bar_times_s(text: str) -> list[float]:
    """Seconds of a step over stretches of the longest bar in a log, or what its last line shows if it is short.

    >>> bar_times_s(" 10%|# | 10/100 [00:20<03:00,  1.20s/it] 50%|##### | 50/100 [01:00<01:00,  1.10s/it]")
    [1.0]
    """
    bars: dict[tuple[str, str], list[_Line]] = {}
    for match in _BAR.finditer(text):
        rate = float(match["rate"])
        if rate > 0 and not _OTHER_WORK.search(match["label"]):
            shown_s = rate if match["unit"] == "s/it" else 1 / rate
            digit = 0.5 * 10.0 ** -len(match["rate"].partition(".")[2]) / rate
            line = _Line(int(match["step"]), _seconds(match["elapsed"]), shown_s, digit)
            bars.setdefault((match["label"].strip(), match["total"]), []).append(line)
    if not bars:
        return []
    longest = max(bars.values(), key=lambda lines: lines[-1].elapsed_s)
    return _stretches_s(longest) or [longest[-1].shown_s]


def _stretches_s(lines: Sequence[_Line]) -> list[float]:
    """Seconds of a step over each stretch that is long beside a digit of the clock; the last one holds the rest."""
    is_long = lines[-1].step - lines[0].step > 8
    steady = [line for line in lines if line.step >= _WARM_UP or not is_long]
    steady, clock_s = _fine_clock(steady)
    stretch_ends = steady[:1]
    for line in steady:
        if line.elapsed_s - stretch_ends[-1].elapsed_s >= _LEAST_RATIO * clock_s and line.step > stretch_ends[-1].step:
            stretch_ends.append(line)
    if len(stretch_ends) < 2:
        return []
    stretch_ends[-1] = steady[-1] if steady[-1].step > stretch_ends[-1].step else stretch_ends[-1]
    return [
        (end.elapsed_s - start.elapsed_s) / (end.step - start.step) for start, end in itertools.pairwise(stretch_ends)
    ]


def _fine_clock(lines: list[_Line]) -> tuple[list[_Line], float]:
    """The lines with the most exact clock, and the seconds of its digit."""
    averages_s = [line.step * line.shown_s for line in lines]
    digits_s = [average_s * line.digit for line, average_s in zip(lines, averages_s, strict=True)]
    is_average = all(
        -digit_s <= average_s - line.elapsed_s <= 1 + digit_s
        for line, average_s, digit_s in zip(lines, averages_s, digits_s, strict=True)
    )
    if not is_average or max(digits_s) >= 1:
        return lines, 1.0
    fine = [dataclasses.replace(line, elapsed_s=average_s) for line, average_s in zip(lines, averages_s, strict=True)]
    return fine, max(digits_s)


def _seconds(clock: str) -> int:
    total = 0
    for part in clock.split(":"):
        total = total * 60 + int(part)
    return total
