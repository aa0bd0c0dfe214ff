"""The answer of `presim deploy`: as a JSON document, and in lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from presim.serving.answer.metrics import Slo
    from presim.serving.deployments.search import Found, Point

SCHEMA = "presim-deployments/1"
_SHOWN = 8  # deployments of the Pareto front
_Point = TypeVar("_Point")


def document(search: Found, confirmed: Sequence[dict[str, Any]], slo: Slo) -> dict[str, Any]:
    """The Pareto front, and the deployments that were simulated request by request."""
    return {
        "schema": SCHEMA,
        "slo": slo.bounds,
        "judged": len(search.points),
        "partial": search.partial,
        "refused": search.refused,
        "pareto": [_entry(point) for point in search.pareto],
        "best": _entry(search.best) if search.best else None,
        "nearest": _entry(search.nearest) if search.nearest else None,
        "simulated": list(confirmed),
        "not_modelled": list(search.not_modelled),
    }


def _entry(point: Point) -> dict[str, Any]:
    return {
        "deployment": point.text,
        "gpus": point.gpus,
        "ttft_ms": point.ttft_ms,
        "tpot_ms": point.tpot_ms,
        "tokens_per_s_per_gpu": point.per_gpu,
        "tokens_per_s_per_user": point.per_user,
    }


def encode(answer: dict[str, Any]) -> bytes:
    """The document as JSON with sorted keys."""
    return (json.dumps(answer, indent=1, sort_keys=True) + "\n").encode()


def text(answer: dict[str, Any]) -> str:
    """A document in lines."""
    front = answer["pareto"]
    partial = " Partial: it was interrupted before the end." if answer.get("partial") else ""
    lines = [f"{answer['judged']:,} deployments evaluated, {len(front)} on the Pareto front.{partial}"]
    if answer["nearest"] is not None:
        nearest = answer["nearest"]
        figures = f"TTFT {nearest['ttft_ms']:.0f} ms, TPOT {nearest['tpot_ms']:.1f} ms"
        lines.append(f"None meets the SLO; the nearest: {nearest['deployment']}, {figures}")
    for entry in spread(front, _SHOWN):
        lines.append(
            f"  {entry['tokens_per_s_per_gpu']:8,.0f} tokens/s/GPU {entry['tokens_per_s_per_user']:6.0f} tokens/s/user"
            f"  TTFT {entry['ttft_ms']:6.0f} ms  {entry['deployment']}"
        )
    if answer["simulated"]:
        lines.append("Simulated request by request, from the fewest to the most tokens/s/GPU:")
    lines += [_simulated(entry, bool(answer.get("slo"))) for entry in answer["simulated"]]
    lines += [f"  rejected, {count}: {reason}" for reason, count in sorted(answer["refused"].items())]
    return "\n".join([*lines, *answer["not_modelled"]])


def _simulated(entry: dict[str, Any], has_slo: bool) -> str:
    if "reason" in entry:
        return f"  not simulated: {entry['deployment']}: {entry['reason']}"
    verdict = ", meets the SLO" if entry["meets_slo"] else ", misses the SLO at p99"
    return (
        f"  {entry['output_throughput']:8,.0f} tokens/s  TTFT {entry['mean_ttft_ms']:.0f} ms  TPOT "
        f"{entry['mean_tpot_ms']:.1f} ms{verdict if has_slo else ''}  {entry['deployment']}"
    )


def spread(front: Sequence[_Point], count: int) -> list[_Point]:
    """A few points spread along the Pareto front, including both ends."""
    if not front:
        return []
    indices = np.unique(np.linspace(0, len(front) - 1, count).round().astype(int))
    return [front[index] for index in indices]
