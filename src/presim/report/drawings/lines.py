"""Charts of lines and points as SVG."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from presim.report.drawings.scales import Scale, tick_text

SMALL, LARGE = (480, 210), (720, 330)  # width and height of a chart
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 24, 12, 40  # of the plane
_NAMES_HEIGHT = 20  # of the line of names above the plane
_NAME_GAP, _NAME_LETTER = 40, 7.4  # pixels: of the mark beside a name, and of a letter
_X_TICKS, _Y_TICKS = 6, 4
_ROOM = 1.04  # of an axis above its largest value
_LOG_ROOM = 1.3


@dataclasses.dataclass(frozen=True)
class Line:
    """Values over a common axis; None: there is none."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: str  # a property of the style sheet, as --part-decode
    is_filled: bool = False  # down to zero
    dashes: str = ""  # of SVG's stroke-dasharray
    is_points: bool = False
    titles: Sequence[str] = ()  # of points


@dataclasses.dataclass(frozen=True)
class Axes:
    """Names of both axes, and whether they are logarithmic."""

    x: str
    y: str
    is_log: bool = False
    starts_at_zero: bool = True


def line_chart(lines: Sequence[Line], axes: Axes, label: str, size: tuple[int, int] = SMALL) -> Markup:
    """The chart; empty where no line has a value. ``label``: for readers of the screen."""
    x_scale = _scale((value for line in lines for value in line.x), axes, is_height=False)
    y_scale = _scale((value for line in lines for value in line.y if value is not None), axes, is_height=True)
    if x_scale is None or y_scale is None:
        return Markup()
    width, height = size
    has_names = len(lines) > 1
    top = _TOP + (_NAMES_HEIGHT if has_names else 0)
    plane = _Plane(x_scale, y_scale, _LEFT, top, width - _RIGHT, height - _BOTTOM)
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width,
        height,
        label,
        Markup("").join(
            [
                *_axes(plane, axes, width, height),
                *(mark for line in lines for mark in _drawn(plane, line)),
                *(_names(lines) if has_names else []),
            ]
        ),
    )


@dataclasses.dataclass(frozen=True)
class _Plane:
    """Where values are drawn, in pixels."""

    x_scale: Scale
    y_scale: Scale
    left_px: float
    top_px: float
    right_px: float
    bottom_px: float

    def x(self, value: float) -> float:
        return self.left_px + (self.right_px - self.left_px) * self.x_scale.share(value)

    def y(self, value: float) -> float:
        return self.bottom_px - (self.bottom_px - self.top_px) * self.y_scale.share(value)


def _scale(values: Iterable[float], axes: Axes, *, is_height: bool) -> Scale | None:
    """The scale of an axis; None without a value."""
    numbers = [value for value in values if value > 0] if axes.is_log else list(values)
    if not numbers:
        return None
    low, high = min(numbers), max(numbers)
    if axes.is_log:
        return Scale(low / _LOG_ROOM, high * _LOG_ROOM, is_log=True)
    if not is_height:
        return Scale(low, high if high > low else low + 1)
    low = min(low, 0.0) if axes.starts_at_zero else low
    return Scale(low, low + ((high - low) or 1.0) * _ROOM)


def _axes(plane: _Plane, axes: Axes, width: int, height: int) -> list[Markup]:
    """Grid, ticks and names."""
    middle = (plane.top_px + plane.bottom_px) / 2
    marks = [
        Markup(
            '<path class="grid" d="M{:.1f} {:.1f}H{:.1f}"/><text x="{:.1f}" y="{:.1f}" class="end">{}</text>'
        ).format(plane.left_px, plane.y(tick), plane.right_px, plane.left_px - 5, plane.y(tick) + 4, tick_text(tick))
        for tick in plane.y_scale.ticks(_Y_TICKS)
    ]
    marks += [
        Markup('<path class="grid" d="M{:.1f} {:.1f}v4"/><text x="{:.1f}" y="{:.1f}" class="middle">{}</text>').format(
            plane.x(tick), plane.bottom_px, plane.x(tick), plane.bottom_px + 17, tick_text(tick)
        )
        for tick in plane.x_scale.ticks(_X_TICKS)
    ]
    marks.append(
        Markup('<path class="grid" d="M{0:.1f} {1:.1f}V{2:.1f}H{3:.1f}"/>').format(
            plane.left_px, plane.top_px, plane.bottom_px, plane.right_px
        )
    )
    marks.append(
        Markup('<text x="{:.1f}" y="{}" class="middle">{}</text>').format(
            (plane.left_px + plane.right_px) / 2, height - 6, axes.x
        )
    )
    marks.append(
        Markup('<text transform="translate(12 {:.1f}) rotate(-90)" class="middle">{}</text>').format(middle, axes.y)
    )
    return marks


def _drawn(plane: _Plane, line: Line) -> list[Markup]:
    """A line in its unbroken parts, or its points."""
    points = [None if y is None else (plane.x(x), plane.y(y)) for x, y in zip(line.x, line.y)]
    if line.is_points:
        titles = line.titles or [line.name] * len(points)
        return [
            Markup('<circle cx="{:.1f}" cy="{:.1f}" r="3.5" style="fill:var({})"><title>{}</title></circle>').format(
                *point, line.colour, title
            )
            for point, title in zip(points, titles)
            if point is not None
        ]
    parts = []
    for is_gap, run in itertools.groupby(points, lambda point: point is None):
        if is_gap:
            continue
        outline = "L".join(f"{x:.1f} {y:.1f}" for x, y in (point for point in run if point is not None))
        if line.is_filled:
            first, last = outline.split(" ")[0], outline.rpartition("L")[2].split(" ")[0]
            parts.append(
                Markup('<path class="area" style="fill:var({})" d="M{} {:.1f}L{}L{} {:.1f}Z"/>').format(
                    line.colour,
                    first,
                    plane.y(max(plane.y_scale.low, 0.0)),
                    outline,
                    last,
                    plane.y(max(plane.y_scale.low, 0.0)),
                )
            )
        parts.append(
            Markup('<path class="line" style="stroke:var({})" stroke-dasharray="{}" d="M{}"/>').format(
                line.colour, line.dashes or "none", outline
            )
        )
    return parts


def _names(lines: Sequence[Line]) -> list[Markup]:
    """Names of lines above the plane, each beside its mark."""
    marks, x = [], float(_LEFT)
    for line in lines:
        mark = (
            Markup('<circle cx="{:.1f}" cy="10" r="4" style="fill:var({})"/>').format(x + 9, line.colour)
            if line.is_points
            else Markup('<path class="line" style="stroke:var({})" stroke-dasharray="{}" d="M{:.1f} 10h18"/>').format(
                line.colour, line.dashes or "none", x
            )
        )
        marks.append(Markup('{}<text x="{:.1f}" y="14">{}</text>').format(mark, x + 23, line.name))
        x += _NAME_GAP + _NAME_LETTER * len(line.name)
    return marks
