"""A calibration as text and JSON."""

from __future__ import annotations

import msgspec

from presim.studies.calibrate.fit_cluster import ClusterCalibration, MemoryCheck
from presim.studies.calibrate.parts import WORDS, Part


class ChangeRow(msgspec.Struct, frozen=True):
    """One change of the cluster."""

    part: Part
    factor: float
    support: str  # the data, in words
    error_before: float | None  # median over work that was not used
    error_after: float | None


class StepTimes(msgspec.Struct, frozen=True):
    """Step time of the run, and as predicted without and with the changes."""

    measured_s: float
    before_s: float
    after_s: float
    held_out: bool


class CalibrationReport(msgspec.Struct, frozen=True):
    """The answer of `presim calibrate job`."""

    changes: list[ChangeRow]
    step_time: StepTimes
    memory: MemoryCheck | None
    notes: list[str]
    file: str = "calibration"  # that was written
    schema: str = "presim-calibration/1"


def report(calibration: ClusterCalibration, path: str) -> CalibrationReport:
    """The changes, their data, and the agreement with the run before and after. ``path``: the file of the cluster."""
    changes = [
        ChangeRow(change.part, change.factor, change.support, change.before, change.after)
        for change in calibration.changes
    ]
    times = StepTimes(calibration.measured_s, calibration.before_s, calibration.after_s, calibration.held_out)
    return CalibrationReport(changes, times, calibration.memory, list(calibration.notes), path)


def text(content: CalibrationReport) -> str:
    """The calibration in lines."""
    count = len(content.changes)
    lines = [f"{content.file}: {count} change{'' if count == 1 else 's'}"]
    for change in content.changes:
        lines.append(f"  {_change_text(change)}, from {change.support}")
        if change.error_before is not None and change.error_after is not None:
            errors = f"{change.error_before:.1%} off before, {change.error_after:.1%} after"
            lines.append(f"    work that was not used: {errors}")
    times = content.step_time
    whose = "not used" if times.held_out else "used; a second one would tell whether it holds"
    lines.append(
        f"  step time ({whose}): measured {times.measured_s:.4g} s, before {times.before_s:.4g} s "
        f"({times.before_s / times.measured_s - 1:+.1%}), after {times.after_s:.4g} s "
        f"({times.after_s / times.measured_s - 1:+.1%})"
    )
    return "\n".join([*lines, *_memory_lines(content.memory), *(f"  {note}" for note in content.notes)])


def encode(content: CalibrationReport) -> bytes:
    """The same as JSON with sorted keys."""
    return msgspec.json.format(msgspec.json.encode(content, order="sorted"), indent=2) + b"\n"


def _memory_lines(memory: MemoryCheck | None) -> list[str]:
    """Measured and predicted peaks, if the profile has any."""
    if memory is None:
        return []
    pairs = {
        "allocated": (memory.measured_allocated, memory.predicted_allocated),
        "reserved": (memory.measured_reserved, memory.predicted_reserved),
    }
    return [
        f"  peak {name} memory: measured {_gib(measured)}, predicted {_gib(predicted)}"
        + (f" ({predicted / measured - 1:+.1%})" if measured else "")
        for name, (measured, predicted) in pairs.items()
    ]


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB"


def _change_text(change: ChangeRow) -> str:
    word = WORDS[change.part]
    return f"{word} {change.factor:g}" if change.part == "host" else f"{word} x {change.factor:.3f}"
