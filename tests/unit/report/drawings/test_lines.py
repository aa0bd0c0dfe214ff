"""Charts of lines: every value is drawn at its place, and ticks are round."""

from __future__ import annotations

import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.report.drawings.lines import Axes, Line, line_chart
from presim.report.drawings.scales import Scale, round_ticks

AXES = Axes("seconds", "requests")
_POINT = re.compile(r"(-?[\d.]+) (-?[\d.]+)")


def outlines(markup: str) -> list[list[tuple[float, float]]]:
    """Points of each unbroken part of lines."""
    paths = re.findall(r'<path class="line"[^>]* d="M([^"]*)"', markup)
    return [[(float(x), float(y)) for x, y in _POINT.findall(path)] for path in paths]


def test_a_line_has_a_point_for_every_value_and_rises_with_it() -> None:
    (outline,) = outlines(line_chart([Line("", [0, 1, 2], [0, 5, 10], "--ink")], AXES, "rising"))
    (x0, y0), (x1, y1), (x2, y2) = outline
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y2  # pixels go down


def test_a_value_that_is_missing_breaks_the_line() -> None:
    line = Line("", [0, 1, 2, 3, 4], [1, 2, None, 3, 4], "--ink")
    assert [len(outline) for outline in outlines(line_chart([line], AXES, "broken"))] == [2, 2]


def test_a_chart_without_values_is_empty() -> None:
    assert not line_chart([Line("", [0.0], [None], "--ink")], AXES, "nothing")
    assert not line_chart([], AXES, "nothing")


def test_names_are_not_markup() -> None:
    lines = [Line(name, [0, 1], [0, 1], "--ink") for name in ("<b>", "other")]
    markup = line_chart(lines, Axes("<i>", "&"), '"<u>')
    assert not re.search("<b>|<i>|<u>", markup)
    assert "&lt;b&gt;" in markup


@given(st.floats(1e-6, 1e9), st.floats(0.01, 1e6), st.integers(2, 10))
def test_ticks_are_round_and_within_the_axis(low: float, relative_span: float, most: int) -> None:
    """Multiples of 1, 2 or 5 times a power of ten."""
    high = low * (1 + relative_span)
    ticks = round_ticks(low, high, most)
    assert len(ticks) <= most + 1
    assert all(low - 1e-6 * high <= tick <= high * (1 + 1e-6) for tick in ticks)
    steps = [following - tick for tick, following in itertools.pairwise(ticks)]
    assert all(step == pytest.approx(steps[0], rel=1e-3) for step in steps)
    for step in steps[:1]:
        mantissa = step / 10 ** math.floor(math.log10(step * (1 + 1e-6)))
        assert min(abs(mantissa / factor - 1) for factor in (1, 2, 5)) < 1e-3


@pytest.mark.parametrize(("low", "high"), [(3.0, 70.0), (50.0, 989.0), (1e-3, 1e6), (2.1, 2.4)])
def test_ticks_of_a_logarithmic_axis_lie_on_it(low: float, high: float) -> None:
    scale = Scale(low, high, is_log=True)
    ticks = scale.ticks(5)
    assert len(ticks) <= 8
    assert all(0 <= scale.share(tick) <= 1 for tick in ticks)
    assert (scale.share(low), scale.share(high)) == (0, pytest.approx(1))
