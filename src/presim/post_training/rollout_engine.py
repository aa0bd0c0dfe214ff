"""The engine that generates responses: its plan with defaults, and the speed of its release."""

from __future__ import annotations

import dataclasses
from typing import Any

from presim.composition.models.description import Model
from presim.errors import InputError
from presim.hardware import Cluster
from presim.post_training.response_lengths import longest
from presim.post_training.rl_job import Placement, SampleBatch, pool_of
from presim.post_training.rl_request import RlRequest
from presim.post_training.sglang_release import STEP_SCALES
from presim.serving.defaults import limits_by_start, with_defaults
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.overheads import Overheads, of_engine
from presim.serving.steps.pricer import PricedWork
from presim.serving.steps.times import PricedEngine, build

_COLOCATED_SHARE = 0.5  # verl's default of rollout.gpu_memory_utilization (verl/trainer/config/rollout/rollout.yaml)
_DEGREES = (1, 2, 4, 8, 16, 32)
_ROUND_TOKENS = 1024


def rollout_engine(
    request: RlRequest,
    model: Model,
    cluster: Cluster,
    placement: Placement,
    batch: SampleBatch,
    works: dict[ServingPlan, PricedWork] | None = None,
) -> tuple[PricedEngine, list[str]]:
    """The engine of the request, or of the smallest tensor-parallel degree that holds a sequence of full length.

    With it, sentences about what was chosen in place of options. ``works``: priced work by plan without its limits;
    what is priced is added.

    Raises:
        InputError: no engine of these holds a prompt with its response.
    """
    fields: dict[str, Any] = dict(request.engine)
    notes = []
    if request.lora_rank is not None and not request.merge_adapters:
        fields |= {"max_loras": 1, "lora_rank": request.lora_rank}
    if placement.has_switches and "gpu_memory_utilization" not in fields and fields.get("kernels") != "sglang":
        fields["gpu_memory_utilization"] = _COLOCATED_SHARE
        notes.append(
            f"The engine takes {_COLOCATED_SHARE:.0%} of GPU memory, verl's default (--gpu-memory-utilization)."
        )
    if fields.get("kernels", "vllm") == "vllm":
        fields = {**limits_by_start(request.vllm_start, cluster.gpu), **fields}
    if model.longest < batch.longest:
        raise InputError(
            f"a prompt with its response has up to {batch.longest:,} tokens, and {model.name} takes {model.longest:,}; "
            f"shorten --response with max={model.longest - longest(batch.prompt)}"
        )
    fields.setdefault("max_model_len", min(-(-batch.longest // _ROUND_TOKENS) * _ROUND_TOKENS, model.longest))
    degrees = (fields["tp"],) if "tp" in fields else _DEGREES
    refusal = None
    for degree in degrees:
        try:
            plan = with_defaults({**fields, "tp": degree}, model, cluster.gpu)
            plan.check(model)
            priced = works.setdefault(_without_limits(plan), PricedWork()) if works is not None else None
            pool = pool_of(cluster, plan.gpus, "engine's")
            engine = build(model, plan, pool, _overheads(request, plan), priced=priced)
        except InputError as error:
            refusal = refusal or error
            continue
        if engine.limits.kv_tokens >= batch.longest:
            if len(degrees) > 1 and degree > 1:
                notes.append(f"Engines of {degree} GPUs (--rollout-tp) were chosen: the fewest that hold a response.")
            return engine, notes
        refusal = refusal or InputError(
            f"an engine as {plan.text} has a KV cache of {engine.limits.kv_tokens:,} tokens, and a prompt with its "
            f"response has up to {batch.longest:,}; use a larger --rollout-tp or --gpu-memory-utilization"
        )
    assert refusal is not None
    raise refusal


def _without_limits(plan: ServingPlan) -> ServingPlan:
    """The plan with nothing of what changes no price of work."""
    return dataclasses.replace(plan, gpu_memory_utilization=1.0, max_num_seqs=1)


def _overheads(request: RlRequest, plan: ServingPlan) -> Overheads | None:
    """Those of an earlier release of SGLang, whose steps take longer; None: the engine's own."""
    scale = STEP_SCALES[request.sglang_release]
    if plan.kernels != "sglang" or scale == 1.0:
        return None
    return dataclasses.replace(of_engine(plan.kernels), step_scale=scale)
