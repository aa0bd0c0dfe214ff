"""Pages draw what the app's panes show: the same passes, loads and kernels, without scripts."""

from __future__ import annotations

import re

import msgspec
import pytest

from presim.evaluation.figures import step_figures
from presim.report import html
from presim.report.drawings.network_loads import network_drawings
from presim.report.drawings.pipeline_diagram import pipeline_diagram
from presim.report.drawings.roofline_chart import roofline_chart
from presim.report.drawings.step_drawings import step_drawings
from presim.result.step_figures import LinkLoads, StepFigures
from support.network_jobs import Call, NetworkJob
from support.stages import two_stages


@pytest.fixture(scope="module")
def figures() -> StepFigures:
    return step_figures(two_stages().evaluation)


@pytest.fixture(scope="module")
def loads() -> LinkLoads:
    job = NetworkJob({"fabric": "fat-tree", "leaf_nodes": 1}, (Call("all_gather", ((8, 2),), MiB=256),), nodes=2)
    return step_figures(job.evaluate()).loads


def test_the_diagram_has_a_block_for_every_pass(figures: StepFigures) -> None:
    """Blocks of a rank take as much of the width as it is busy."""
    drawing = pipeline_diagram(figures.passes)
    assert drawing is not None
    lanes = drawing.markup.split('class="passes"')[1:]
    for lane, row in zip(lanes, figures.passes.ranks, strict=True):
        widths = [float(width) for width in re.findall(r"width:([\d.]+)%", lane)]
        assert len(widths) == len(row.passes) > 0
        assert sum(widths) == pytest.approx(100 * (1 - row.idle), abs=0.1)


def test_the_roofline_has_a_point_for_every_kernel_with_arithmetic(figures: StepFigures) -> None:
    drawing = roofline_chart(figures.roofline)
    assert drawing is not None
    assert drawing.markup.count("<circle") == sum(point.rate > 0 for point in figures.roofline.points) + 1  # and a mark
    for level in figures.roofline.levels:
        assert f"{level.bytes_per_s / 1e12:.2f} TB/s ({level.origin})" in drawing.caption


def test_links_have_their_load_at_the_busiest_moment(loads: LinkLoads) -> None:
    network, over_time = network_drawings(loads)
    drawn = [int(load) for load in re.findall(r": (\d+) % of", network.markup)]
    moments = list(zip(*(percents for *_, percents in loads.links)))
    assert drawn in [list(moment) for moment in moments]
    assert max(drawn) == max(map(max, loads.by_kind.values()))
    assert over_time.notes[-1].startswith("A load is")


def test_what_has_no_data_is_not_drawn(figures: StepFigures) -> None:
    nothing = msgspec.structs.replace(
        figures,
        passes=msgspec.structs.replace(figures.passes, ranks=[]),
        loads=LinkLoads("One GPU has no network."),
        roofline=msgspec.structs.replace(figures.roofline, points=[]),
    )
    assert step_drawings(nothing) == []


def test_a_page_with_drawings_needs_nothing_else(figures: StepFigures) -> None:
    result = two_stages().evaluation.result
    page = html.render(result, figures)
    assert not re.search(
        r"https?:|src=|@import|url\(|<script|<link", page.replace('<link rel="icon" href="data:,">', "")
    )
    for name in ("Pipeline", "Roofline"):
        assert f"<h2>{name}" in page
        assert f"<h2>{name}" not in html.render(result)
