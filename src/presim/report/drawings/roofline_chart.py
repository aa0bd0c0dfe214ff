"""The roofline in a page: kernels by arithmetic intensity, below the peak and the slopes of memory levels."""

from __future__ import annotations

from presim.report.drawings.drawing import Drawing
from presim.report.drawings.lines import LARGE, Axes, Line, line_chart
from presim.result.step_figures import MemoryLevel, Roofline, RooflinePoint
from presim.units import seconds

_TERA = 1e12
_SLOPES = (("--part-other", "6 4"), ("--part-exposed-communication", "2 3"), ("--part-gradient", ""))
_POINTS = "--part-compute"
_SEEN_BELOW_RIDGE = 20  # at least so much of a slope, as a factor of intensity


def roofline_chart(roofline: Roofline) -> Drawing | None:
    """The chart; None where no kernel does arithmetic."""
    points = [point for point in roofline.points if point.rate]
    if not points or not roofline.peak:
        return None
    lines = [
        _slope(level, roofline.peak, points, colour, dashes)
        for level, (colour, dashes) in zip(roofline.levels, _SLOPES)
    ]
    x, y = [point.intensity for point in points], [point.rate / _TERA for point in points]
    titles = [_title(point) for point in points]
    chart = line_chart(
        [*lines, Line("kernels", x, y, _POINTS, is_points=True, titles=titles)],
        Axes("FLOP/byte", "TFLOP/s", is_log=True),
        f"Roofline: {len(points)} kernels",
        LARGE,
    )
    slopes = "; ".join(
        f"{level.name} {level.bytes_per_s / _TERA:.2f} TB/s ({level.origin})" for level in roofline.levels
    )
    caption = f"Peak of {roofline.dtype}: {roofline.peak / _TERA:,.0f} TFLOP/s. Slopes: {slopes}."
    return Drawing("Roofline", chart, caption, is_wide=True)


def _slope(level: MemoryLevel, peak: float, points: list[RooflinePoint], colour: str, dashes: str) -> Line:
    """A level's bandwidth up to the ridge, then the peak."""
    low, high = (choose(point.intensity for point in points) for choose in (min, max))
    ridge = peak / level.bytes_per_s
    intensities = sorted({min(low, ridge / _SEEN_BELOW_RIDGE), ridge, max(high, ridge)})
    rates: list[float | None] = [min(peak, intensity * level.bytes_per_s) / _TERA for intensity in intensities]
    origin = "" if level.origin == "datasheet" else ", reached"
    return Line(f"{level.name}{origin}", intensities, rates, colour, dashes=dashes)


def _title(point: RooflinePoint) -> str:
    parts = (point.name, point.shape, point.module, seconds(point.seconds), point.bound)
    return ", ".join(part for part in parts if part)
