"""A result in a notebook: a table with bars as HTML, and figures as Altair charts.

Charts are Vega-Lite specifications. Altair is imported only if a chart is requested.
"""

from __future__ import annotations

import html
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from presim.errors import InputError
from presim.report import content
from presim.report.bars import SMALLEST_SHARE, Part
from presim.report.palette import colours
from presim.result import Result
from presim.units import GIB

VEGA_LITE = "https://vega.github.io/schema/vega-lite/v6.json"
_ROWS = 12  # operators in a chart


def as_html(result: Result) -> str:
    """Key figures, time, memory and limits of the step as HTML. Names from the script are escaped."""
    cells = "".join(
        f"<td style='text-align:left;padding:2px 18px 2px 0'><small>{_safe(cell.label)}</small><br>"
        f"<b>{_safe(cell.value)}</b> <small>{_safe(cell.remark)}</small></td>"
        for cell in content.headline(result)
    )
    parts = [
        f"<b>presim</b> <small>{_safe(content.rank_and_cluster(result))}</small>",
        f"<table><tr>{cells}</tr></table>",
    ]
    if failure := content.failure(result):
        parts.append(f"<div><b>{_safe(failure[0])}</b> {_safe(failure[1])}</div>")
    if result.step_time_s is not None:
        parts.append(_bar("Time", content.time_parts(result)))
    if result.memory.peak_reserved_bytes:
        parts.append(_bar("Memory", content.memory_parts(result)))
    limits = "".join(
        f"<li><b>{_safe(limit.name)}</b> {_safe(limit.statement)} {_safe(limit.advice)}</li>" for limit in result.limits
    )
    return f"<div>{''.join(parts)}{f'<ul>{limits}</ul>' if limits else ''}</div>"


def chart_spec(result: Result, figure: str = "time") -> dict[str, Any]:
    """A figure as a Vega-Lite specification: time, memory, memory-over-time or operators.

    Raises:
        InputError: there is no such figure, or the result lacks its data.
    """
    if figure not in _FIGURES:
        raise InputError(f"there is no figure {figure!r}; a result has {', '.join(_FIGURES)}")
    spec = _FIGURES[figure](result)
    if not spec["data"]["values"]:
        raise InputError(f"the result has no data on {figure}; choose another figure")
    return {"$schema": VEGA_LITE, "width": 560, **spec}


def chart(result: Result, figure: str = "time") -> Any:
    """The figure as an Altair chart.

    Raises:
        InputError: Altair is not installed, or see `chart_spec`.
    """
    spec = chart_spec(result, figure)
    try:
        altair = importlib.import_module("altair")
    except ImportError as error:
        raise InputError(
            "charts need Altair: pip install altair; presim.report.notebook.chart_spec needs nothing"
        ) from error
    return altair.Chart.from_dict(spec)


def _stacked(parts: Sequence[Part], scale: float, unit: str) -> dict[str, Any]:
    shown = _shown(parts)
    names = [part.name for part in shown]
    rows = [{"part": part.name, unit: part.size / scale, "order": index} for index, part in enumerate(shown)]
    return {
        "data": {"values": rows},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {
            "x": {"field": unit, "type": "quantitative", "stack": "zero"},
            "color": {
                "field": "part",
                "type": "nominal",
                "scale": {"domain": names, "range": colours(names)},
            },
            "order": {"field": "order", "type": "quantitative"},
        },
    }


def _time(result: Result) -> dict[str, Any]:
    has_step_time = result.step_time_s is not None
    return _stacked(content.time_parts(result) if has_step_time else [], 1e-3, "ms")


def _memory(result: Result) -> dict[str, Any]:
    has_memory = result.memory.peak_reserved_bytes
    return _stacked(content.memory_parts(result) if has_memory else [], GIB, "GiB")


def _over_time(result: Result) -> dict[str, Any]:
    line = result.memory.timeline
    rows = [
        {"ms": time * 1e3, "GiB": size / GIB, "memory": name}
        for name, sizes in (("reserved", line.reserved_bytes), ("allocated", line.allocated_bytes))
        for time, size in zip(line.time_s, sizes)
    ]
    return {
        "data": {"values": rows},
        "mark": {"type": "line", "interpolate": "step-after", "tooltip": True},
        "encoding": {
            "x": {"field": "ms", "type": "quantitative"},
            "y": {"field": "GiB", "type": "quantitative"},
            "color": {"field": "memory", "type": "nominal"},
        },
    }


def _operators(result: Result) -> dict[str, Any]:
    rows = [
        {
            "operator": operator.name,
            "ms": operator.critical_s * 1e3,
            "device ms": operator.seconds * 1e3,
            "calls": operator.count,
        }
        for operator in result.operators[:_ROWS]
    ]
    return {
        "data": {"values": rows},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {
            "x": {"field": "ms", "type": "quantitative", "title": "ms of the step"},
            "y": {"field": "operator", "type": "nominal", "sort": None, "title": None},
        },
    }


_FIGURES: dict[str, Callable[[Result], dict[str, Any]]] = {
    "time": _time,
    "memory": _memory,
    "memory-over-time": _over_time,
    "operators": _operators,
}


def _bar(title: str, parts: Sequence[Part]) -> str:
    shown = _shown(parts)
    total = sum(part.size for part in shown) or 1.0
    coloured = list(zip(shown, colours(part.name for part in shown)))
    stretches = "".join(
        f"<span style='display:inline-block;height:14px;width:{part.size / total:.2%};"
        f"background:{colour}' title='{_safe(part.name)} {_safe(part.figure)}'></span>"
        for part, colour in coloured
    )
    legend = " &nbsp; ".join(
        f"<span style='color:{colour}'>■</span> {_safe(part.name)} <b>{_safe(part.figure)}</b>"
        for part, colour in coloured
    )
    return f"<div>{title}</div><div style='max-width:640px;white-space:nowrap'>{stretches}</div><small>{legend}</small>"


def _shown(parts: Sequence[Part]) -> list[Part]:
    total = sum(part.size for part in parts)
    return [part for part in parts if part.size > total * SMALLEST_SHARE]


def _safe(text: object) -> str:
    return html.escape(str(text), quote=True)
