"""Step times in the lines that training frameworks log.

Some log the time of a step, others only a rate. A rate becomes a time by what a step of the job works on: its tokens
or samples, which the captured job knows. Lines of several ranks about one step count once, by their median.

==================== =================================================================== ==================
framework            line                                                                gives
==================== =================================================================== ==================
Megatron-LM          ``elapsed time per iteration (ms): 1250.3``                         time
Megatron-Bridge      ``Step Time : 12.34s GPU utilization: 400.1MODEL_TFLOP/s/GPU``      time
NeMo                 ``train_step_timing in s=0.615``                                    time
torchtitan           ``step: 10  loss: 8.1  memory: 40.1GiB(50%)  tps: 7,214``           tokens/s of a GPU
DeepSpeed            ``RunningAvgSamplesPerSec=95.3, CurrSamplesPerSec=96.1``            samples/s
DeepSpeed before 0.6 ``0/40, SamplesPerSec=83.48``                                       samples/s
Hugging Face Trainer ``{'train_runtime': 12.3, 'train_steps_per_second': 1.25}``         steps/s
Lightning, tqdm      ``10%|█ | 10/100 [00:12<01:48,  1.20s/it]`` or ``0.83it/s``         `progress_bars`
anything else        ``step_time: 250 ms``, ``iter time: 0.25``                          time
==================== =================================================================== ==================
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterable

from presim.studies.calibrate.progress_bars import bar_times_s

_NUMBER = r"(?P<value>\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
_UNITS = {"ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6}
_UNIT = "ms|milliseconds|seconds|sec|s|us"
_FLAGS = re.IGNORECASE
_TIME = re.compile(
    r"(?:step[ _-]?time|iteration[ _-]?time|elapsed time per iteration|time[ _/]per[ _/](?:step|iteration)"
    r"|iter[ _]?time|time/step|train_step_timing(?: in)?)"
    rf"\s*(?:\(?(?P<before>{_UNIT})\)?(?=\s*[:=]))?\s*[:=]\s*{_NUMBER}\s*(?P<after>{_UNIT})?\b",
    _FLAGS,
)
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_STEP = re.compile(r"\b(?:global_step|step|iteration)\s*[:=]?\s*(?P<number>\d+)\b", _FLAGS)


@dataclasses.dataclass(frozen=True)
class StepWork:
    """What a step of the job works on, over all ranks; None: not known."""

    tokens: float | None = None
    samples: float | None = None
    gpus: int = 1


@dataclasses.dataclass(frozen=True)
class _Rate:
    """A rate in a log, and the attribute of `StepWork` that it counts."""

    pattern: re.Pattern[str]
    amount: str
    per_gpu: bool = False


# In order: the first that a log has counts. DeepSpeed's current rate precedes its running average.
_RATES = (
    _Rate(re.compile(rf"\btps:\s*{_NUMBER}", _FLAGS), "tokens", per_gpu=True),
    _Rate(re.compile(rf"\b(?:Curr)?SamplesPerSec=\s*{_NUMBER}", _FLAGS), "samples"),
)
_STEPS_PER_S = re.compile(rf"'train_steps_per_second':\s*'?{_NUMBER}", _FLAGS)  # of a whole run


def times_in(text: str, work: StepWork) -> tuple[list[float], str]:
    """Seconds of the steps in a log, and what its rates would need (empty: nothing).

    >>> times_in("step: 10  loss: 8.12  memory: 40.10GiB(50.64%)  tps: 8,000", StepWork(tokens=128_000, gpus=8))
    ([2.0], '')
    """
    text = _COLOURS.sub("", text)
    if times_s := _by_step(text, ((match, _seconds(match)) for match in _TIME.finditer(text))):
        return times_s, ""
    for rate in _RATES:
        matches = [match for match in rate.pattern.finditer(text) if _value(match) > 0]
        amount = getattr(work, rate.amount)
        if matches and amount is None:
            return [], f"{rate.amount} of a step"
        if matches:
            share = amount / (work.gpus if rate.per_gpu else 1)
            return _by_step(text, ((match, share / _value(match)) for match in matches)), ""
    return bar_times_s(text) or [1 / value for match in _STEPS_PER_S.finditer(text) if (value := _value(match)) > 0], ""


def _by_step(text: str, values: Iterable[tuple[re.Match[str], float]]) -> list[float]:
    """A value for each step: the median of the lines with its number; lines without a number count by themselves."""
    by_number: dict[str, list[float]] = {}
    for index, (match, value) in enumerate(values):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        step = _STEP.search(line)
        by_number.setdefault(step["number"] if step else f"line {index}", []).append(value)
    return [statistics.median(numbers) for numbers in by_number.values()]


def _seconds(match: re.Match[str]) -> float:
    return _value(match) * _UNITS[(match["before"] or match["after"] or "s").lower()]


def _value(match: re.Match[str]) -> float:
    return float(match["value"].replace(",", ""))
