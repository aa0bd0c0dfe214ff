"""Panes of results in the app: those of `presim view`, and charts that it has for none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from presim.app.view.opened import Pane, opened
from presim.post_training.rl_answer import RlAnswer
from presim.report.palette import css_classes
from presim.result.deployments import DeployResult
from presim.studies.saved_results.read_result import SavedResult


def panes_of(result: SavedResult) -> Mapping[str, Pane]:
    """The panes of a result by name; the first is shown first."""
    chart = _CHARTS.get(result.kind.name)
    charts = {_NAMES.get(result.kind.name, result.kind.name): lambda: chart(result.content)} if chart else {}
    return {**charts, **opened(result).panes}


def _deployments(answer: DeployResult) -> dict[str, Any]:
    """Deployments by speed for a user and throughput: the estimated front, and those that were simulated."""
    return {
        "slo": answer.slo,
        "slo_statistics": answer.slo_statistics,
        "front": msgspec.to_builtins(answer.pareto),
        "simulated": [msgspec.to_builtins(entry) for entry in answer.simulated if entry.tokens_per_s_per_user],
        "best": msgspec.to_builtins(answer.best),
        "sentences": [*answer.would_help, *answer.not_modelled],
    }


def _rl(answer: RlAnswer) -> dict[str, Any]:
    """Pools of GPUs over time: the phases of every simulated step, and the tail of rollouts where steps are alike."""
    phases = list(dict.fromkeys(span.phase for span in answer.timeline))
    is_alternating = len(answer.pools) == 1  # each step's rollout is one phase, whose end is that of its batch
    return {
        "pools": msgspec.to_builtins(answer.pools),
        "phases": [{"name": name, "css_class": css_class} for name, css_class in zip(phases, css_classes(phases))],
        "spans": msgspec.to_builtins(answer.timeline),
        "tail_s": answer.figures.rollout_tail_s if is_alternating else None,
        "steady_from": answer.steady_from,
        "shares": msgspec.to_builtins(answer.phases),
        "memory": msgspec.to_builtins(answer.memory),
        "alternatives": msgspec.to_builtins(answer.alternatives),
        "notes": [*answer.notes, *answer.not_modelled],
    }


_CHARTS: dict[str, Callable[[Any], dict[str, Any]]] = {"deployments": _deployments, "rl": _rl}
_NAMES = {"rl": "pools"}  # of panes, where it is not that of the kind
