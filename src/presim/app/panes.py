"""Panes of results in the app: those of `presim view`, and charts that it has for none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from presim.view.opened import Pane, opened
from presim.view.saved.read import SavedResult


def panes_of(result: SavedResult) -> Mapping[str, Pane]:
    """The panes of a result by name; the first is shown first."""
    chart = _CHARTS.get(result.kind.name)
    charts = {result.kind.name: lambda: chart(result.content)} if chart else {}
    return {**charts, **opened(result).panes}


def _deployments(document: dict[str, Any]) -> dict[str, Any]:
    """Deployments by speed for a user and throughput: the estimated front, and those that were simulated."""
    return {
        "slo": document["slo"],
        "slo_statistics": document.get("slo_statistics", {}),
        "front": document["pareto"],
        "simulated": [entry for entry in document["simulated"] if entry.get("tokens_per_s_per_user")],
        "best": document["best"],
        "sentences": [*document.get("would_help", ()), *document["not_modelled"]],
    }


_CHARTS: dict[str, Callable[[Any], dict[str, Any]]] = {"deployments": _deployments}
