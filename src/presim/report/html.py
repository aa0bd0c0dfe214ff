"""The result as one self-contained HTML page.

It loads nothing from elsewhere. Charts are SVG, bars are CSS, with a light and a dark theme.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from presim.report import content, training
from presim.report.bars import Bar, Part
from presim.report.blocks import BarPart, bar_block
from presim.report.drawings.step_drawings import step_drawings
from presim.report.rendering import template
from presim.report.tables import largest_modules
from presim.result import Result
from presim.result.step_figures import StepFigures
from presim.system.files import write_file
from presim.units import GIB, gib, percent, seconds, three_digits

_ROWS = 40  # of a table
_TICKS = 4  # of the chart of memory
_HIGHEST_TICK = 0.97  # of the chart, so that its text is inside
_CHART = (720, 180)  # width and height of a chart's plane


def write(result: Result, path: str | os.PathLike[str], figures: StepFigures | None = None) -> None:
    """Write the page to a file. ``figures``: of the simulated step, which are drawn, too."""
    write_file(path, render(result, figures).encode())


def render(result: Result, figures: StepFigures | None = None) -> str:
    """The page."""
    page = template(
        Path(__file__).with_name("page.html.jinja"),
        gib=gib,
        percent=percent,
        seconds=seconds,
        rate=content.rate,
        phase_name=content.phase_name,
        phase_share=content.phase_share,
    )
    drawings = step_drawings(figures) if figures is not None and result.step_time_s is not None else []
    return page.render(**_shown(result), drawings=drawings)


def _shown(result: Result) -> dict[str, Any]:
    """Values for the template."""
    has_step_time = result.step_time_s is not None
    return {
        "result": result,
        "command": result.job.script or "trace",
        "where": content.rank_and_cluster(result),
        "failure": content.failure(result),
        "partial": content.PARTIAL if result.partial else "",
        "headline": content.headline(result),
        "time": _bar(content.time_parts(result)) if has_step_time else [],
        "time_caption": content.time_caption(result),
        "phases": result.time.by_phase if has_step_time else [],
        "step_phases": result.steps.phases if has_step_time else [],
        "phase_caption": content.phase_caption(result),
        "memory": _bar(content.memory_parts(result)) if result.memory.peak_reserved_bytes else [],
        "chart": _memory_chart(result),
        "limits": result.limits if has_step_time else [],
        "operators": result.operators[:_ROWS] if has_step_time else [],
        "modules": _modules(result) if has_step_time else [],
        "collectives": result.collectives[:_ROWS] if has_step_time else [],
        "origins": content.origins(result),
        "energy": content.energy(result),
        "training": _training(result),
    }


def _training(result: Result) -> dict[str, Any] | None:
    """A whole training with such steps, as on its own page, without the chart of intervals."""
    projection = result.training
    if projection is None:
        return None
    return {
        "headline": training.headline(projection),
        "bar": _bar(training.parts(projection)),
        "checkpoints": training.checkpoints(projection),
        "assumptions": projection.assumptions,
    }


def _bar(parts: Sequence[Part]) -> list[BarPart]:
    """The visible parts with their share of the bar and their CSS class."""
    return bar_block(Bar(parts)).parts


def _modules(result: Result) -> list[dict[str, Any]]:
    """The modules with the largest share of the step, with their depth in the tree."""
    step_time_s = result.step_time_s or 1.0
    return [
        {
            "name": name.strip(),
            "path": module.path,
            "depth": (len(name) - len(name.lstrip())) / 2,
            "seconds": module.critical_s,
            "share": module.critical_s / step_time_s,
        }
        for name, module in largest_modules(result.modules, _ROWS)
    ]


def _ticks(top: float) -> list[int]:
    """Up to four whole numbers below a top, at 1, 2 or 5 times a power of ten."""
    steps = (factor * 10**power for power in range(6) for factor in (1, 2, 5))
    step = next((step for step in steps if top / step < _TICKS + 1), 1)
    return list(range(step, int(top * _HIGHEST_TICK), step))


def _memory_chart(result: Result) -> dict[str, Any] | None:
    """Outlines of allocated and reserved memory over the step, in the plane `_CHART`; None if unknown."""
    line, total = result.memory.timeline, result.memory.device_total_bytes
    if len(line.time_s) < 2 or not total:
        return None
    width, height = _CHART
    start, length = line.time_s[0], (line.time_s[-1] - line.time_s[0]) or 1.0
    top = max(total, *line.reserved_bytes)

    def outline(values: Sequence[int]) -> str:
        """A step function: each value holds until the next point."""
        points = [f"M0,{height}"]
        for time, value in zip(line.time_s, values):
            points.append(f"H{(time - start) / length * width:.1f}V{height - value / top * height:.1f}")
        return "".join([*points, f"H{width}V{height}Z"])

    return {
        "width": width,
        "height": height,
        "allocated": outline(line.allocated_bytes),
        "reserved": outline(line.reserved_bytes),
        "device": height - total / top * height,
        "ticks": [{"y": height - size * GIB / top * height, "text": f"{size} GiB"} for size in _ticks(top / GIB)],
        "duration": seconds(length),
        "capacity": f"{three_digits(total / GIB)} GiB",
    }
