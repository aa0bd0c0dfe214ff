"""Data of the panes that show a result: of a simulated job, or of a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from presim.report import content
from presim.report.bars import Bar, Part
from presim.report.blocks import bar_block
from presim.result import Result
from presim.result.memory import ModulePeak
from presim.units import GIB

_MOST_MODULES = 40


def summary(result: Result, label: str, ranks: Sequence[int] = ()) -> dict[str, Any]:
    """Key figures, step time by kind, memory, limits. ``ranks``: with a timeline."""
    return {
        "label": label,
        "script": result.job.script,
        "where": content.rank_and_cluster(result),
        "failure": list(content.failure(result) or ()),
        "headline": [dataclasses.asdict(cell) for cell in content.headline(result)],
        "time": _parts(content.time_parts(result)) if result.step_time_s is not None else [],
        "memory": _parts(content.memory_parts(result)) if result.memory.peak_reserved_bytes else [],
        "memory_limit": _memory_limit(result),
        "limits": [msgspec.to_builtins(limit) for limit in result.limits],
        "ranks": list(ranks),
        "notes": [*result.notes, *result.not_modelled],
    }


def _parts(parts: Sequence[Part]) -> list[Any]:
    drawn: list[Any] = msgspec.to_builtins(bar_block(Bar(parts)).parts)
    return drawn


def _memory_limit(result: Result) -> dict[str, Any] | None:
    """Where the device's memory ends within the parts of the peak; null where all of them are within it."""
    total_bytes = sum(part.size for part in content.memory_parts(result))
    device_bytes = result.memory.device_total_bytes
    if not 0 < device_bytes < total_bytes or not result.memory.peak_reserved_bytes:
        return None
    return {"name": f"the GPU's {device_bytes / GIB:.1f} GiB", "share": device_bytes / total_bytes}


def memory(result: Result) -> dict[str, Any]:
    """Allocated and reserved memory over the step, the contents of the peak, and each module's own peak."""
    device = result.memory
    return {
        "time_s": device.timeline.time_s,
        "allocated": device.timeline.allocated_bytes,
        "reserved": device.timeline.reserved_bytes,
        "device": device.device_total_bytes,
        "verdict": device.verdict,
        "parts": _parts(content.memory_parts(result)) if device.peak_reserved_bytes else [],
        "parts_limit": _memory_limit(result),
        "by_category": [msgspec.to_builtins(category) for category in device.by_category],
        "by_module": [msgspec.to_builtins(module) for module in device.by_module[:_MOST_MODULES]],
        "modules": [_module_peak(peak) for peak in device.modules[:_MOST_MODULES]],
    }


def _module_peak(peak: ModulePeak) -> dict[str, Any]:
    """A module's peak, with the largest category of what was alive."""
    largest = peak.alive[0].name.replace("_", " ") if peak.alive else ""
    return {
        "path": peak.path,
        "depth": peak.depth,
        "phase": peak.phase,
        "peak_bytes": peak.peak_bytes,
        "new_bytes": peak.new_bytes,
        "largest": largest,
    }


def communication(result: Result, messages: Sequence[tuple[int, int, int]] = ()) -> dict[str, Any]:
    """Collectives by group, and ``messages`` between ranks: from, to, bytes."""
    collectives = [msgspec.to_builtins(collective) for collective in result.collectives]
    return {"collectives": collectives, "messages": [list(message) for message in messages]}
