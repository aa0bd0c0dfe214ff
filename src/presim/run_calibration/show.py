"""A calibration as text and JSON."""

from __future__ import annotations

import dataclasses

import msgspec

from presim.run_calibration.fit import Calibration, Change, MemoryCheck
from presim.run_calibration.parts import WORDS


def text(found: Calibration, path: str) -> str:
    """The changes, their data, and the agreement with the run before and after."""
    lines = [f"{path}: {len(found.changes)} changes" if len(found.changes) != 1 else f"{path}: 1 change"]
    for change in found.changes:
        lines.append(f"  {_change_text(change)}, from {change.support}")
        if change.before is not None and change.after is not None:
            lines.append(f"    work that was not used: {change.before:.1%} off before, {change.after:.1%} after")
    whose = "not used" if found.held_out else "used; a second one would tell whether it holds"
    lines.append(
        f"  step time ({whose}): measured {found.measured_s:.4g} s, before {found.before_s:.4g} s "
        f"({found.before_s / found.measured_s - 1:+.1%}), after {found.after_s:.4g} s "
        f"({found.after_s / found.measured_s - 1:+.1%})"
    )
    return "\n".join([*lines, *_memory_lines(found.memory), *(f"  {note}" for note in found.notes)])


def encode(found: Calibration) -> bytes:
    """The same as JSON with sorted keys."""
    content = {
        "changes": [
            {
                "part": change.part,
                "factor": change.factor,
                "support": change.support,
                "error_before": change.before,
                "error_after": change.after,
            }
            for change in found.changes
        ],
        "step_time": {
            "measured_s": found.measured_s,
            "before_s": found.before_s,
            "after_s": found.after_s,
            "held_out": found.held_out,
        },
        "memory": None if found.memory is None else dataclasses.asdict(found.memory),
        "notes": list(found.notes),
    }
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


def _change_text(change: Change) -> str:
    word = WORDS[change.part]
    return f"{word} {change.factor:g}" if change.part == "host" else f"{word} x {change.factor:.3f}"
