"""Panes of results in the app: those of `presim view`, and charts that it has for none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from presim.app.view.opened import Pane, opened
from presim.post_training.rl_answer import RlAnswer
from presim.report.palette import css_classes
from presim.result.deployments import DeployResult, SimulatedDeployment
from presim.studies.saved_results.read_result import SavedResult
from presim.units import GIB


def panes_of(result: SavedResult) -> Mapping[str, Pane]:
    """The panes of a result by name; the first is shown first."""
    chart = _CHARTS.get(result.kind.name)
    charts = {_NAMES.get(result.kind.name, result.kind.name): lambda: chart(result.content)} if chart else {}
    return {**charts, **opened(result).panes}


def _deployments(answer: DeployResult) -> dict[str, Any]:
    """Deployments by speed for a user and throughput: the estimated front, and those that were simulated."""
    simulated = [_confirmed(entry, answer) for entry in answer.simulated if entry.tokens_per_s_per_user]
    return {
        "slo": answer.slo,
        "slo_statistics": answer.slo_statistics,
        "front": msgspec.to_builtins(answer.pareto),
        "simulated": msgspec.to_builtins(simulated),
        "problem": answer.shortfall or _without_room(answer),
        "best": msgspec.to_builtins(answer.best),
        "sentences": [*answer.would_help, *answer.not_modelled],
    }


def _confirmed(entry: SimulatedDeployment, answer: DeployResult) -> SimulatedDeployment:
    """The best plan has the figures of its answer, which more requests have confirmed, in its row, too."""
    best = answer.best
    is_best = best is not None and (entry.deployment, entry.request_rate) == (best.deployment, best.request_rate)
    return best if best is not None and is_best else entry


def _without_room(answer: DeployResult) -> str:
    lacking = answer.without_room
    if lacking is None:
        return ""
    needed, missing = lacking.needed_bytes / GIB, lacking.missing_bytes / GIB
    return (
        f"No plan holds the model and the longest request. {lacking.deployment} lacks least: {needed:,.1f} GiB on each "
        f"GPU, {missing:,.1f} GiB more than the engine may use."
    )


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
