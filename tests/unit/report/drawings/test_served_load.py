"""A served load in a page has the values of its result."""

from __future__ import annotations

import re

import pytest

from presim.report.drawings.served_load import engines_over_time, requests_over_time, served_load
from presim.result.serving import EnginesOverTime, LoadOverTime, RequestTimes

LOAD = LoadOverTime([0.0, 1.0, 2.0], [1, 4, 2], [0, 3, 0], [0.1, 0.5, 0.25], [10.0, None, 12.0])


def test_the_load_has_its_peaks_in_words() -> None:
    batch, cache, _ = served_load(LOAD)
    assert batch.caption == "at most 4 in batches and 3 waiting"
    assert cache.caption == "at most 50.0 % of the blocks"
    assert batch.markup.count('class="line" style="stroke:var(--part-queued)"') == 2  # a name and a line


def test_engines_that_never_change_are_a_line_to_the_end() -> None:
    """A single moment was an empty chart."""
    drawing = engines_over_time(EnginesOverTime(["time_s", "serving", "failed"], [[0.0, 2, 0]]), end_s=10.0)
    assert drawing.caption == "at most 2 serving"
    (outline,) = re.findall(r'class="line"[^>]* d="M([^"]*)"', drawing.markup)
    (x0, y0), (x1, y1) = (point.split() for point in outline.split("L"))
    assert y0 == y1
    assert float(x1) - float(x0) > 300


def test_requests_have_a_bar_for_each_phase_that_took_time() -> None:
    times = RequestTimes(2, [0.0, 1.0], [0.5, 1.0], [1.0, 2.0], [4.0, None])
    drawing = requests_over_time(times)
    assert drawing is not None
    bars = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*--part-(\w+)', drawing.markup)
    assert [(float(x), float(width), phase) for x, width, phase in bars] == [
        (0.0, 0.5, "queued"),
        (0.5, 0.5, "prefill"),
        (1.0, 3.0, "decode"),
        (1.0, 1.0, "prefill"),
    ]
    assert "never decode" in drawing.markup


@pytest.mark.parametrize("moments", [[], [None]])
def test_a_load_without_an_answer_has_no_requests(moments: list[float | None]) -> None:
    assert requests_over_time(RequestTimes(len(moments), moments, moments, moments, moments)) is None
