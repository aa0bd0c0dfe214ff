"""All drawings of a step's figures, in the order of a page."""

from __future__ import annotations

from presim.report.drawings.drawing import Drawing
from presim.report.drawings.network_loads import network_drawings
from presim.report.drawings.pipeline_diagram import pipeline_diagram
from presim.report.drawings.roofline_chart import roofline_chart
from presim.result.step_figures import StepFigures


def step_drawings(figures: StepFigures) -> list[Drawing]:
    """Those for which the step has data."""
    parts = (pipeline_diagram(figures.passes), roofline_chart(figures.roofline))
    return [drawing for drawing in parts if drawing is not None] + network_drawings(figures.loads)
