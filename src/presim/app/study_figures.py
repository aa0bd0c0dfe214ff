"""The key figures of results that study others: explanations, comparisons, gates, networks and prefill."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from presim.app.key_figures import KeyFigure, Summary
from presim.hardware.network.network_answer import NetworkAnswer
from presim.planner.matrix import Matrix
from presim.result.comparison import Comparison
from presim.result.explanation import Explanation
from presim.serving.prompts.prefill_record import SPLIT_NAMES
from presim.studies.gate.budget_check import Gate
from presim.units import percent, seconds, seconds_range


def _of_explanation(explanation: Explanation) -> Summary:
    figures = [_step("step", "step time", explanation.step_time_s)]
    if explanation.limits:
        largest = max(explanation.limits, key=lambda limit: limit.seconds)
        name = largest.name.replace("_", " ")
        figures.append(
            KeyFigure("limit", f"limited by {name}", largest.share, percent(largest.share), seconds(largest.seconds))
        )
    if explanation.gains:
        best = max(explanation.gains, key=lambda gain: gain.gain_s)
        words = f"at most, by {best.change}" if best.kind == "bound" else f"by {best.change}"
        figures.append(KeyFigure("gain", "largest gain", best.gain_s, seconds(best.gain_s), words, 1, "s"))
    return Summary(explanation.script, "", explanation.cluster, figures)


def _of_comparison(comparison: Comparison) -> Summary:
    figures = [
        _step(f"step {number}", entry.label, entry.step_time_s)
        for number, entry in enumerate(comparison.results[:_MOST_COMPARED], start=1)
    ]
    first = comparison.results[0] if comparison.results else None
    subject = " → ".join(entry.label for entry in comparison.results[:_MOST_COMPARED])
    return Summary(subject, "", first.cluster if first else "", figures)


def _of_gate(gate: Gate) -> Summary:
    passed = sum(job.passed for job in gate.jobs)
    total = len(gate.jobs)
    figures = [KeyFigure("passed", "jobs within their budgets", passed, f"{passed:,} of {total:,}", "", 1)]
    failed_names = [job.name for job in gate.jobs if not job.passed]
    warning = f"beyond the budget or failed: {', '.join(failed_names)}" if failed_names else ""
    return Summary(", ".join(job.name for job in gate.jobs), "", "", figures, warning)


def _of_network(answer: NetworkAnswer) -> Summary:
    busiest = max(answer.busiest_links or [], key=lambda link: link.utilisation, default=None)
    figures = []
    if answer.seconds is not None:
        name = f"time of {answer.collective}"
        figures.append(KeyFigure("collective", name, answer.seconds, seconds(answer.seconds), "", -1, "s"))
    if busiest is not None:
        share = busiest.utilisation
        figures.append(KeyFigure("busiest", "busiest link", share, percent(share), busiest.link, -1))
    ranks = f"{answer.collective} of {answer.ranks:,} ranks" if answer.collective else "network"
    cluster = f"{answer.gpus:,} GPUs, {answer.vertices:,} vertices, {answer.links:,} links, one way each"
    return Summary(ranks, "", cluster, figures)


def _of_prefill(answer: dict[str, Any]) -> Summary:
    figures = []
    for name, policy in sorted(answer["batches"][0]["policies"].items(), key=lambda entry: entry[1]["ms"]):
        low, high = policy["interval_80_ms"]
        text, remark = f"{policy['ms']:.3g} ms", f"{low:.3g} to {high:.3g} ms"
        figures.append(
            KeyFigure(f"prefill {name}", f"split: {SPLIT_NAMES[name]}", policy["ms"], text, remark, -1, "ms", low, high)
        )
    cluster = f"{answer['gpus']:,} x {answer['gpu']}, {answer['ranks']} ranks of {answer['plan_of_a_rank']}"
    return Summary(f"{answer['model']}: prefill, first batch", answer["gpu"], cluster, figures)


def _of_matrix(matrix: Matrix) -> Summary:
    run_by_cluster = {run.on: run for run in matrix.runs if run.on == run.plan_of and run.step_time_s is not None}
    figures = [
        _step(f"step {matrix.clusters[number]}", f"best on {matrix.clusters[number]}", run.step_time_s)
        for number, run in sorted(run_by_cluster.items())
    ]
    return Summary(f"{matrix.subject}: best plans across clusters", "", ", ".join(matrix.clusters), figures)


def _step(key: str, label: str, step_time_s: float | None, low_s: float = 0, high_s: float = 0) -> KeyFigure:
    if step_time_s is None:
        return KeyFigure(key, label, None, "unknown")
    remark = seconds_range(low_s, high_s) if low_s < high_s else ""
    return KeyFigure(key, label, step_time_s, seconds(step_time_s), remark, -1, "s")


_MOST_COMPARED = 6
STUDIES: types.MappingProxyType[str, Callable[[Any], Summary]] = types.MappingProxyType(
    {
        "explanation": _of_explanation,
        "comparison": _of_comparison,
        "gate": _of_gate,
        "network": _of_network,
        "prefill": _of_prefill,
        "search-matrix": _of_matrix,
    }
)
