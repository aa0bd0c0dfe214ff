"""Figures of a simulated step that a result alone cannot give: passes of stages, loads of links, the roofline."""

from __future__ import annotations

from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.figures.kernel_roofline import kernel_roofline
from presim.evaluation.figures.link_loads import link_loads
from presim.evaluation.figures.stage_passes import stage_passes
from presim.result.step_figures import StepFigures

__all__ = ["kernel_roofline", "link_loads", "stage_passes", "step_figures"]


def step_figures(evaluation: Evaluation) -> StepFigures:
    """All of them."""
    return StepFigures(stage_passes(evaluation), link_loads(evaluation), kernel_roofline(evaluation))
