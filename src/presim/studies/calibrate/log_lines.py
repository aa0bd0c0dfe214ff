"""Step times in the lines that training frameworks log.

Some log the time of a step, others only a rate. A rate becomes a time by what a step of the job works on: its tokens
or samples, which the captured job knows.

==================== =================================================================== ==================
framework            line                                                                gives
==================== =================================================================== ==================
Megatron-LM          ``elapsed time per iteration (ms): 1250.3``                         time
Megatron-Bridge      ``Step Time : 12.34s GPU utilization: 400.1MODEL_TFLOP/s/GPU``      time
torchtitan           ``step: 10  loss: 8.1  memory: 40.1GiB(50%)  tps: 7,214``           tokens/s of a GPU
DeepSpeed            ``RunningAvgSamplesPerSec=95.3, CurrSamplesPerSec=96.1``            samples/s
Hugging Face Trainer ``{'train_runtime': 12.3, 'train_steps_per_second': 1.25}``         steps/s
Lightning, tqdm      ``10%|█ | 10/100 [00:12<01:48,  1.20s/it]`` or ``0.83it/s``         time, steps/s
anything else        ``step_time: 250 ms``, ``iter time: 0.25``                          time
==================== =================================================================== ==================
"""

from __future__ import annotations

import dataclasses
import re

_NUMBER = r"(?P<value>\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
_UNITS = {"ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6}
_UNIT = "ms|milliseconds|seconds|sec|s|us"
_FLAGS = re.IGNORECASE
_TIME = re.compile(
    r"(?:step[ _-]?time|iteration[ _-]?time|elapsed time per iteration|time[ _/]per[ _/](?:step|iteration)"
    rf"|iter[ _]?time|time/step)\s*(?:\((?P<before>{_UNIT})\))?\s*[:=]\s*{_NUMBER}\s*(?P<after>{_UNIT})?\b",
    _FLAGS,
)
_SECONDS_OF_STEP = re.compile(rf"\|\s*\d+/\d+ \[[^\]]*?,\s*{_NUMBER}\s*s/it\b", _FLAGS)


@dataclasses.dataclass(frozen=True)
class StepWork:
    """What a step of the job works on, over all ranks; None: not known."""

    tokens: float | None = None
    samples: float | None = None
    gpus: int = 1


@dataclasses.dataclass(frozen=True)
class _Rate:
    """A rate in a log, and the attribute of `StepWork` that it is of."""

    pattern: re.Pattern[str]
    amount: str  # tokens, samples; "": steps
    per_gpu: bool = False


# In order: the first that a log has counts. DeepSpeed's current rate precedes its running average.
_RATES = (
    _Rate(re.compile(rf"\btps:\s*{_NUMBER}", _FLAGS), "tokens", per_gpu=True),
    _Rate(re.compile(rf"\bCurrSamplesPerSec=\s*{_NUMBER}", _FLAGS), "samples"),
    _Rate(re.compile(rf"'train_steps_per_second':\s*'?{_NUMBER}", _FLAGS), ""),
    _Rate(re.compile(rf"\|\s*\d+/\d+ \[[^\]]*?,\s*{_NUMBER}\s*it/s\b", _FLAGS), ""),
)


def times_in(text: str, work: StepWork) -> tuple[list[float], str]:
    """Seconds of the steps in a log, and what its rates would need (empty: nothing).

    >>> times_in("step: 10  loss: 8.12  memory: 40.10GiB(50.64%)  tps: 8,000", StepWork(tokens=128_000, gpus=8))
    ([2.0], '')
    """
    times_s = [_seconds(match) for match in _TIME.finditer(text)]
    times_s = times_s or [_value(match) for match in _SECONDS_OF_STEP.finditer(text)]
    if times_s:
        return times_s, ""
    for rate in _RATES:
        if values := [value for match in rate.pattern.finditer(text) if (value := _value(match)) > 0]:
            amount = getattr(work, rate.amount) if rate.amount else 1.0
            if amount is None:
                return [], f"{rate.amount} of a step"
            share = amount / (work.gpus if rate.per_gpu else 1)
            return [share / value for value in values], ""
    return [], ""


def _seconds(match: re.Match[str]) -> float:
    return _value(match) * _UNITS[(match["before"] or match["after"] or "s").lower()]


def _value(match: re.Match[str]) -> float:
    return float(match["value"].replace(",", ""))
