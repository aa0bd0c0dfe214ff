"""The answer of `presim deploy` as a `presim.result.deployments.DeployResult`, and that as JSON and CSV."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from presim.composition.models.description import Model
from presim.result.deployments import (
    Confirmation,
    DeploymentCosts,
    DeploymentLimits,
    DeploymentWithoutRoom,
    DeployResult,
    EstimatedDeployment,
    LoadPoint,
    PlanLoss,
    SimulatedDeployment,
)
from presim.result.serving import ServedLoad
from presim.serving.deployments.demand import Demand
from presim.serving.deployments.deployment_answer import DeploymentAnswer
from presim.serving.deployments.deployment_point import DeploymentPoint
from presim.serving.deployments.deployment_ranking import RankedDeployment, Ranking
from presim.serving.deployments.deployment_search import Found
from presim.serving.deployments.question import DeploymentQuestion
from presim.serving.deployments.unfit import Misfit
from presim.serving.engine_versions import NEWEST
from presim.serving.workloads.workload import summary
from presim.system.files import encode_csv

_LATENCY = re.compile(r"(mean|median|p[\d.]+)_(ttft|tpot|e2el)_ms")  # names of figures


def result_of(
    question: DeploymentQuestion,
    model: Model,
    search: Found,
    ranking: Ranking,
    answer: DeploymentAnswer | None = None,
    advice: Sequence[str] = (),
    shortfall: str | None = None,
) -> DeployResult:
    """The deployments that were simulated request by request, best first, and the estimated Pareto front."""
    best, nearest = answer.best.outcome if answer else ranking.best, ranking.nearest
    return DeployResult(
        **_question(question, model),
        judged=len(search.points),
        partial=search.partial or ranking.partial,
        refused=search.refused,
        pareto=[_estimated(point) for point in search.pareto],
        best=_simulated(best) if best else None,
        confirmation=_confirmation(answer, question.demand) if answer else None,
        nearest=_simulated(nearest) if nearest else None,
        would_help=list(advice),
        shortfall=shortfall,
        plans=ranking.plans,
        unsimulated=ranking.unsimulated,
        simulated=[_simulated(outcome) for outcome in ranking.outcomes],
        not_modelled=list(search.not_modelled),
    )


def of_misfit(question: DeploymentQuestion, model: Model, misfit: Misfit) -> DeployResult:
    """The answer where no plan holds the model."""
    nearest = misfit.nearest
    without_room = DeploymentWithoutRoom(
        deployment=nearest.text,
        gpu=nearest.gpu.id,
        gpus=nearest.gpus,
        needed_bytes=nearest.needed_bytes,
        missing_bytes=nearest.missing_bytes,
    )
    return DeployResult(
        **_question(question, model),
        judged=0,
        refused={},
        pareto=[],
        plans=0,
        simulated=[],
        best=None,
        nearest=None,
        without_room=without_room,
        would_help=list(misfit.remedies),
        shortfall=misfit.sentence,
        not_modelled=[],
    )


def _question(question: DeploymentQuestion, model: Model) -> dict[str, Any]:
    """The first fields of an answer."""
    slo, demand = question.load.slo, question.demand
    limits = DeploymentLimits(
        request_rate=demand.rate,
        total_gpus=demand.total_gpus,
        price_per_hour=demand.hourly,
        watts=demand.power_w,
        price_per_million_output_tokens=demand.cost,
        price_per_gpu_hour=dict(demand.prices),
    )
    workload = ServedLoad(**summary(question.load.workload))
    return {
        "model": model.name, "workload": workload, "limits": limits,
        "slo": slo.bounds, "slo_statistics": slo.statistics,
    }  # fmt: skip


def _confirmation(answer: DeploymentAnswer, demand: Demand) -> Confirmation:
    """How sure the best is, what it costs, and what follows it."""
    best, following = answer.best, answer.following
    return Confirmation(
        units=answer.units,
        spare_units=answer.spare_units,
        draws=best.draws,
        ranges={name: (_finite(low), _finite(high)) for name, (low, high) in best.ranges.items()},
        rate_range=best.rates,
        queue_rate=best.queue_rate,
        costs=_costs(best.outcome, demand),
        load_curve=[LoadPoint(request_rate=trial.rate, figures=trial.figures) for trial in best.curve],
        losses=[PlanLoss(plan=name, share=share) for name, share in answer.losses],
        next_best=_simulated(following.outcome) if following else None,
        next_rate_range=following.rates if following else None,
        next_costs=_costs(following.outcome, demand) if following else None,
        ranges_overlap=answer.overlaps,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _costs(outcome: RankedDeployment, demand: Demand) -> DeploymentCosts:
    return DeploymentCosts(
        hour=demand.hour(outcome.point),
        million_output_tokens=demand.per_million(outcome.point, outcome.per_gpu),
        watts=demand.watts(outcome.point),
    )


def _estimated(point: DeploymentPoint) -> EstimatedDeployment:
    return EstimatedDeployment(
        **_engines(point, point.text),
        ttft_ms=point.ttft_ms,
        tpot_ms=point.tpot_ms,
        tokens_per_s_per_gpu=point.per_gpu,
        tokens_per_s_per_user=point.per_user,
    )


def _engines(point: DeploymentPoint, name: str) -> dict[str, Any]:
    """The fields of `presim.result.deployments.DeployedEngines`."""
    plan, prefill = point.engine.plan, point.prefill
    return {
        "deployment": name,
        "gpus": point.gpus,
        "gpu": point.engine.cluster.gpu.id,
        "engine": plan.engine,
        "engine_version": plan.engine_version or NEWEST[plan.engine],
        "engines": point.replicas,
        "tp": plan.tp,
        "pp": plan.pp,
        "dp": plan.dp,
        "weights": plan.weights,
        "kv": plan.cache,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
        "prefill_engines": point.prefill_replicas,
        "prefill_tp": prefill.plan.tp if prefill else None,
        "prefill_gpu": prefill.cluster.gpu.id if prefill else None,
    }


def _simulated(outcome: RankedDeployment) -> SimulatedDeployment:
    point, trial = outcome.point, outcome.trial
    fields = {**_engines(point, point.name), "verdict": outcome.verdict}
    if trial is None:
        return SimulatedDeployment(**fields, reason=outcome.reason)
    fields |= {"request_rate": trial.rate, "tokens_per_s_per_gpu": outcome.per_gpu}
    if not trial.figures:
        return SimulatedDeployment(**fields, reason="no request met a steady state at this load")
    tpot = trial.figures["mean_tpot_ms"]
    return SimulatedDeployment(
        **fields,
        meets_slo=trial.meets,
        tokens_per_s_per_user=1e3 / tpot if tpot else None,
        ttft_ms=trial.figures["mean_ttft_ms"],
        tpot_ms=tpot,
        figures=trial.figures,
        output_throughput=outcome.per_gpu * point.gpus,
        in_flight=trial.in_flight,
        requests=trial.judged,
        estimated_tokens_per_s_per_gpu=point.per_gpu,
    )


def table(answer: DeployResult) -> bytes:
    """The deployments that were simulated, as CSV: a column for each field and figure."""
    rows = []
    for deployment in answer.simulated:
        fields = msgspec.to_builtins(deployment)
        figures = fields.pop("figures")
        rows.append({**fields, **figures})
    names = [field.name for field in msgspec.structs.fields(SimulatedDeployment) if field.name != "figures"]
    latencies = sorted({name for deployment in answer.simulated for name in deployment.figures})
    return encode_csv([*names, *latencies], rows)


def encode(answer: DeployResult) -> bytes:
    """The answer as JSON with sorted keys."""
    return (json.dumps(msgspec.to_builtins(answer, enc_hook=float), indent=1, sort_keys=True) + "\n").encode()


def upgrade_1(content: dict[str, Any]) -> dict[str, Any]:
    """The JSON of schema 1 as schema 2: figures and what confirms the best stood among other fields."""
    nearest = content["nearest"]
    fields = {name: value for name, value in content.items() if name not in ("schema", "next_best")}
    if nearest is not None and "missing_bytes" in nearest:
        fields |= {"nearest": None, "without_room": nearest}
    else:
        fields["nearest"] = _simulated_1(nearest)
    fields |= {"best": _simulated_1(content["best"]), "simulated": [*map(_simulated_1, content["simulated"])]}
    if "rate_range" in content:
        following = content["next_best"]
        load_curve = content["load_curve"]
        curve = [{"request_rate": entry["request_rate"], "figures": _figures_1(entry)} for entry in load_curve]
        fields["confirmation"] = content | {
            "load_curve": curve,
            "next_best": _simulated_1(following),
            "next_rate_range": following.get("rate_range") if following else None,
        }
        fields["limits"] = {"request_rate": content["rate_asked"]}
    return fields


def _simulated_1(entry: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if entry is None else {**entry, "figures": _figures_1(entry)}


def _figures_1(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if _LATENCY.fullmatch(name)}
