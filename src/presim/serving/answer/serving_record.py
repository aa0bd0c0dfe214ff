"""A prediction as a `presim.result.serving.ServingResult`, and that as JSON."""

from __future__ import annotations

import dataclasses
import json

import msgspec

from presim.result.serving import (
    CacheTiers,
    EngineDefaults,
    EngineFigures,
    EngineMemory,
    EnginesOverTime,
    FleetFigures,
    KvGroup,
    ServedDeployment,
    ServedLoad,
    ServingResult,
)
from presim.serving import defaults
from presim.serving.answer import metrics, operator_detail, over_time
from presim.serving.answer.token_cost import TokenPrices, cost_of
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.prediction import Prediction
from presim.serving.engine_versions import NEWEST
from presim.serving.kept_bytes import model_state_bytes, model_token_bytes
from presim.serving.steps.engine_memory import MemoryPlan
from presim.serving.steps.times import PricedEngine
from presim.serving.workloads.workload import summary
from presim.units import GIB

_NO_PRICES = TokenPrices()


def result_of(
    prediction: Prediction, *, per_request: bool = False, prices: TokenPrices = _NO_PRICES, detailed_steps: bool = False
) -> ServingResult:
    """All results of a prediction.

    ``per_request``: with the times of each request; ``detailed_steps``: with two steps by operator.
    """
    engine, slo = prediction.deployment.engine, prediction.slo
    figures = metrics.bench(prediction.served, slo, per_request=True) if per_request else prediction.figures
    return ServingResult(
        deployment=_served_deployment(prediction.deployment),
        memory=_engine_memory(engine.memory, engine.limits.max_model_len),
        workload=ServedLoad(**summary(prediction.workload)),
        figures=figures,
        intervals_80=prediction.intervals,
        per_gpu_output_throughput=figures["output_throughput"] / prediction.gpus,
        fleet=_fleet(prediction),
        cost=cost_of(prediction, prices),
        engine=_engine_figures(prediction),
        slo=slo.bounds,
        slo_percentile=slo.percentile,
        slo_statistics=slo.statistics,
        sustainable_request_rate=prediction.sustainable,
        largest_request_rate_within_slo=prediction.knee,
        overloaded=prediction.overloaded,
        prices=engine.origins,
        steps=engine.steps,
        step_detail=operator_detail.of_prediction(prediction) if detailed_steps else None,
        overheads=dataclasses.asdict(engine.overheads),
        notes=prediction.notes,
        not_modelled=prediction.not_modelled,
        over_time=over_time.load_over_time(prediction),
        request_times=over_time.request_times(prediction.served),
    )


def encode(result: ServingResult) -> bytes:
    """Encode as JSON with sorted keys."""
    return (json.dumps(msgspec.to_builtins(result, enc_hook=float), indent=1, sort_keys=True) + "\n").encode()


def _served_deployment(deployment: Deployment) -> ServedDeployment:
    engine = deployment.engine
    plan, gpu = engine.plan, engine.cluster.gpu
    return ServedDeployment(
        model=engine.model.name,
        gpu=gpu.id,
        plan=plan.text,
        weights=_weights(engine),
        parameters=engine.model.parameters,
        described_by=engine.model.origin,
        layers=engine.model.text,
        kv_bytes_per_token=model_token_bytes(engine.model, plan.cache, gpu.architecture),
        state_bytes_per_sequence=model_state_bytes(engine.model),
        gpus=deployment.gpus,
        replicas=deployment.replicas,
        prefill_replicas=deployment.prefill_replicas,
        prefill_gpu=deployment.prefill.cluster.gpu.id if deployment.prefill else None,
        router=deployment.router,
        life=None if deployment.life is None else dataclasses.asdict(deployment.life),
        limits=dataclasses.asdict(engine.limits),
        engine_defaults=EngineDefaults(
            engine=defaults.VERSIONS[plan.kernels],
            version=plan.engine_version or NEWEST[plan.kernels],
            text=defaults.sentence(plan, gpu),
            fields={name: getattr(plan, name) for name in plan.defaulted},
        ),
    )


def _weights(engine: PricedEngine) -> str:
    """Types of the weights, and what of the checkpoint says so, or what it has instead of the user's."""
    plan, checkpoint = engine.plan, engine.model.checkpoint
    if plan.as_published:
        return checkpoint.text
    types = plan.weights if plan.of_experts == plan.weights else f"{plan.weights}, experts {plan.of_experts}"
    return f"{types} (--weights; the checkpoint has {checkpoint.types})" if checkpoint.method else types


def _engine_memory(memory: MemoryPlan, max_model_len: int) -> EngineMemory:
    return EngineMemory(
        weights_GiB=memory.weights / GIB,
        activations_GiB=memory.activations / GIB,
        others_GiB=(memory.reserved - memory.uncounted) / GIB,
        kv_cache_GiB=memory.cache / GIB,
        allowed_GiB=memory.allowed / GIB,
        kv_cache_tokens=memory.tokens(max_model_len),
        kv_cache_pages=memory.blocks,
        kv_page_tokens=memory.pool.block_tokens,
        kv_page_bytes=memory.pool.page_bytes,
        kv_groups=[
            KvGroup(group.spec.kind, len(group.layers), group.spec.block_tokens, group.spec.window or None)
            for group in memory.pool.groups
        ],
    )


def _fleet(prediction: Prediction) -> FleetFigures | None:
    if prediction.fleet is None:
        return None
    over_time = EnginesOverTime(**prediction.fleet["engines_over_time"])
    return FleetFigures(**{**prediction.fleet, "engines_over_time": over_time})


def _engine_figures(prediction: Prediction) -> EngineFigures:
    figures = dict(prediction.inside)
    tiers = figures.pop("tiers", None)
    return EngineFigures(**figures, tiers=None if tiers is None else CacheTiers(**tiers))
