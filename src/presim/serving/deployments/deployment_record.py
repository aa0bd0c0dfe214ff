"""The answer of `presim deploy`: as a JSON document, and in lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from presim.serving.deployments.sensitivity import DRAWS
from presim.serving.deployments.sentences import first_lines, latencies
from presim.system.files import encode_csv
from presim.units import plain

if TYPE_CHECKING:
    from presim.serving.answer.metrics import Slo
    from presim.serving.deployments.demand import Demand
    from presim.serving.deployments.deployment_answer import DeploymentAnswer
    from presim.serving.deployments.deployment_ranking import Ranking, SimulatedDeployment
    from presim.serving.deployments.deployment_search import DeploymentPoint, Found
    from presim.serving.deployments.unfit import Misfit

SCHEMA = "presim-deployments/1"
_SHOWN = 8  # deployments of the Pareto front
_FEWER = 3  # deployments that miss the SLO at a load that another serves
_Point = TypeVar("_Point")


def document(
    search: Found,
    ranking: Ranking,
    slo: Slo,
    advice: Sequence[str] = (),
    shortfall: str | None = None,
    answer: DeploymentAnswer | None = None,
    demand: Demand | None = None,
) -> dict[str, Any]:
    """The deployments that were simulated request by request, best first, and the estimated Pareto front."""
    best, nearest = answer.best.outcome if answer else ranking.best, ranking.nearest
    return {
        "schema": SCHEMA,
        "slo": slo.bounds,
        "slo_statistics": slo.statistics,
        "judged": len(search.points),
        "partial": search.partial or ranking.partial,
        "refused": search.refused,
        "pareto": [_entry(point) for point in search.pareto],
        "best": _outcome_entry(best) if best else None,
        **(_confirmed(answer, demand) if answer and demand else {}),
        "nearest": _outcome_entry(nearest) if nearest else None,
        "would_help": list(advice),
        "shortfall": shortfall,
        "plans": ranking.plans,
        "simulated": [_outcome_entry(outcome) for outcome in ranking.outcomes],
        "not_modelled": list(search.not_modelled),
    }


def of_misfit(misfit: Misfit, slo: Slo) -> dict[str, Any]:
    """The document where no plan holds the model."""
    nearest = misfit.nearest
    return {
        "schema": SCHEMA,
        "slo": slo.bounds,
        "slo_statistics": slo.statistics,
        "judged": 0,
        "partial": False,
        "refused": {},
        "pareto": [],
        "best": None,
        "nearest": {
            "deployment": nearest.text,
            "gpu": nearest.gpu.id,
            "gpus": nearest.gpus,
            "needed_bytes": nearest.needed_bytes,
            "missing_bytes": nearest.missing_bytes,
            "reason": "no room",
        },
        "would_help": list(misfit.remedies),
        "shortfall": misfit.sentence,
        "plans": 0,
        "simulated": [],
        "not_modelled": [],
    }


def _confirmed(answer: DeploymentAnswer, demand: Demand) -> dict[str, Any]:
    """How sure the best is, what it costs, and what follows it."""
    best, following = answer.best, answer.following
    return {
        "rate_asked": demand.rate,
        "units": answer.units,
        "spare_units": answer.spare_units,
        "costs": _costs(best.outcome, demand),
        "ranges": {name: list(bounds) for name, bounds in best.ranges.items()},
        "draws": DRAWS,
        "rate_range": list(best.rates),
        "queue_rate": best.queue_rate,
        "next_best": _outcome_entry(following.outcome) | {"rate_range": list(following.rates)} if following else None,
        "next_costs": _costs(following.outcome, demand) if following else None,
        "ranges_overlap": answer.overlaps,
        "load_curve": [{"request_rate": result.rate, **result.figures} for result in best.curve],
        "losses": [{"plan": name, "share": share} for name, share in answer.losses],
    }


def _costs(outcome: SimulatedDeployment, demand: Demand) -> dict[str, float | None]:
    gpu = outcome.point.engine.cluster.gpu.id
    price, watts = demand.price(gpu), demand.watts(gpu)
    return {
        "hour": price * outcome.point.gpus if price is not None else None,
        "million_output_tokens": demand.per_million(gpu, outcome.per_gpu),
        "watts": watts * outcome.point.gpus if watts is not None else None,
    }


def _entry(point: DeploymentPoint) -> dict[str, Any]:
    return {
        "deployment": point.text,
        **_engines(point),
        "ttft_ms": point.ttft_ms,
        "tpot_ms": point.tpot_ms,
        "tokens_per_s_per_gpu": point.per_gpu,
        "tokens_per_s_per_user": point.per_user,
        "basis": "estimated",
    }


def _engines(point: DeploymentPoint) -> dict[str, Any]:
    """What a deployment is made of; `prefill_tp` is absent where engines do both."""
    plan = point.engine.plan
    split = {"prefill_engines": point.prefill_replicas, "prefill_tp": point.prefill.plan.tp} if point.prefill else {}
    return {
        "gpus": point.gpus,
        "gpu": point.engine.cluster.gpu.id,
        "engine": plan.decides,
        "engines": point.replicas,
        "tp": plan.tp,
        "pp": plan.pp,
        "dp": plan.dp,
        "weights": plan.weights,
        "kv": plan.cache,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
        **split,
    }


def _outcome_entry(outcome: SimulatedDeployment) -> dict[str, Any]:
    point, result = outcome.point, outcome.trial
    entry = {"deployment": point.name, **_engines(point), "verdict": outcome.verdict, "meets_slo": False}
    if result is None:
        return entry | {"reason": outcome.reason}
    load = {"request_rate": result.rate, "tokens_per_s_per_gpu": outcome.per_gpu, "basis": "simulated"}
    if not result.figures:
        return entry | load | {"reason": "no request met a steady state at this load"}
    tpot = result.figures["mean_tpot_ms"]
    return {
        **entry,
        **load,
        **result.figures,
        "ttft_ms": result.figures["mean_ttft_ms"],
        "tpot_ms": tpot,
        "tokens_per_s_per_user": 1e3 / tpot if tpot else None,
        "output_throughput": outcome.per_gpu * point.gpus,
        "in_flight": result.in_flight,
        "requests": result.judged,
        "meets_slo": result.meets,
        "estimated_tokens_per_s_per_gpu": point.per_gpu,
    }


def table(answer: dict[str, Any]) -> bytes:
    """The deployments that were simulated, as CSV."""
    rows = answer["simulated"]
    names = list(dict.fromkeys(["deployment", "gpus", "verdict", *(key for row in rows for key in row)]))
    return encode_csv(names, rows)


def encode(answer: dict[str, Any]) -> bytes:
    """The document as JSON with sorted keys."""
    return (json.dumps(answer, indent=1, sort_keys=True) + "\n").encode()


def text(answer: dict[str, Any]) -> str:
    """A document in lines."""
    front, simulated, statistics = answer["pareto"], answer["simulated"], answer.get("slo_statistics", {})
    lines = [*first_lines(answer), *answer.get("would_help", ())]
    if answer.get("partial"):
        lines.append("Partial: it was interrupted before the end.")
    fewer = [entry for entry in simulated if entry.get("verdict") == "fewer"]
    shown = [entry for entry in simulated if entry not in fewer]
    plans = f" of {answer['plans']}" if "plans" in answer else ""
    if simulated:
        lines.append(
            f"Simulated request by request, {len(simulated)}{plans} plans, at the largest load within the SLO:"
        )
    lines += [_simulated(entry, statistics) for entry in shown]
    if fewer:
        lines.append(f"{len(fewer)} of them do not serve the load of the best of their kind, e.g.")
        lines += [_simulated(entry, statistics) for entry in fewer[:_FEWER]]
    if answer["judged"]:
        lines.append(
            f"{answer['judged']:,} deployments evaluated without queues, {len(front)} on the estimated Pareto front."
        )
    for entry in spread(front, _SHOWN):
        lines.append(
            f"  {entry['tokens_per_s_per_gpu']:8,.0f} tokens/s/GPU {entry['tokens_per_s_per_user']:6.0f} tokens/s/user"
            f"  TTFT {entry['ttft_ms']:6.0f} ms  {entry['deployment']}"
        )
    lines += [f"  rejected, {count}: {reason}" for reason, count in sorted(answer["refused"].items())]
    return "\n".join([*lines, *answer["not_modelled"]])


def _simulated(entry: dict[str, Any], statistics: dict[str, str]) -> str:
    """A line about a deployment; presim once simulated so many requests in flight, without a rate."""
    if "request_rate" not in entry:
        if "reason" in entry:
            return f"  not simulated: {entry['deployment']}: {entry['reason']}"
        return f"  {entry['output_throughput']:8,.0f} tokens/s  {latencies(entry, statistics)}  {entry['deployment']}"
    figures = entry.get("reason") or latencies(entry, statistics)
    verdict = "" if entry["meets_slo"] or not statistics else ", misses the SLO"
    load = f"{entry['tokens_per_s_per_gpu']:8,.0f} tokens/s/GPU {plain(entry['request_rate']):>7} requests/s"
    return f"  {load}  {figures}{verdict}  {entry['deployment']}"


def spread(front: Sequence[_Point], count: int) -> list[_Point]:
    """A few points spread along the Pareto front, including both ends."""
    if not front:
        return []
    indices = np.unique(np.linspace(0, len(front) - 1, count).round().astype(int))
    return [front[index] for index in indices]
