"""Makes a plan, a deployment and a workload of the options of ``presim serve``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from presim.composition.models.description import Model
from presim.errors import InputError
from presim.hardware import Gpu
from presim.hardware.cluster_choice import choose_cluster
from presim.serving import serving_effort
from presim.serving.defaults import with_defaults
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.disaggregation import refusal
from presim.serving.deployments.shared_kv import SharedKv
from presim.serving.drafting import drafting_of
from presim.serving.engines.engine import Life, Scaling
from presim.serving.model_lookup import config_of, find, from_config
from presim.serving.serving_options import EngineOptions, EnginesOptions, FleetOptions, LifeOptions, LoadOptions
from presim.serving.serving_plan import Offload, ServingPlan
from presim.serving.steps import overheads
from presim.serving.steps.times import PricedEngine, build
from presim.serving.weight_types import typed
from presim.serving.workloads import generate, traces, workload
from presim.serving.workloads.workload import Workload
from presim.system import budgets
from presim.system.files import shortened
from presim.units import quantities
from presim.verbs.capture_steps import engine_with_steps

_TARGETS = {"utilization": 0.7, "queue": 4.0}  # of an autoscaler's signal, where the user names none
_PLAN = {field.name for field in dataclasses.fields(ServingPlan)} & {
    field.name for field in dataclasses.fields(EngineOptions)
}
_RECIPE = (
    {field.name for field in dataclasses.fields(generate.WorkloadRecipe)}
    & {field.name for field in dataclasses.fields(LoadOptions)}
) - {"requests", "prompt", "output"}


def plan_of(options: EngineOptions, model: Model, gpu: Gpu) -> ServingPlan:
    """The plan of an engine, with its defaults for the GPU.

    Raises:
        InputError: an option has no value that an engine takes, or the checkpoint's types are not known.
    """
    plan_fields = {name: getattr(options, name) for name in _PLAN}
    weights, experts = plan_fields.pop("weights"), plan_fields.pop("expert_weights")
    offload = None
    if options.kv_host or options.kv_disk:
        offload = Offload(options.kv_host, options.kv_disk, options.kv_host_bandwidth, options.kv_disk_bandwidth)
    draft_model = find(options.draft_model) if options.draft_model else None
    drafting = drafting_of(options.speculative, options.draft_tokens, options.acceptance, draft_model)
    plan_fields |= {"drafting": drafting, "offload": offload}
    named_fields = {name: value for name, value in plan_fields.items() if value is not None}
    types = typed(ServingPlan(**named_fields), model, weights, experts)
    plan_fields |= {name: getattr(types, name) for name in ("weights", "expert_weights", "as_published")}
    return with_defaults(plan_fields, model, gpu)


def prefill_plan_of(options: EnginesOptions, plan: ServingPlan) -> ServingPlan:
    """The plan of engines that only prefill, beside engines of ``plan``."""
    return dataclasses.replace(plan, tp=options.prefill_tp or plan.tp)


def engines_of(options: EnginesOptions, engine: PricedEngine, build_prefill: Callable[[], PricedEngine]) -> Deployment:
    """Engines like ``engine``, and those that only prefill, if there are any."""
    prefill = build_prefill() if options.prefill_replicas else None
    pool = shared_kv_of(options, engine.plan)
    return Deployment(engine, options.replicas, options.router, prefill, options.prefill_replicas, shared_kv=pool)


def shared_kv_of(options: EnginesOptions, plan: ServingPlan) -> SharedKv | None:
    """The pool of cached blocks that all engines share; None: there is none.

    Raises:
        InputError: its options have no effect, or their values are none.
    """
    if options.kv_shared and not plan.prefix_caching:
        raise InputError("--kv-shared keeps blocks of the prefix cache, which --no-prefix-caching switches off")
    if options.kv_shared:
        return SharedKv(options.kv_shared, options.kv_shared_bandwidth)
    if options.kv_shared_bandwidth is not None:
        raise InputError("--kv-shared-bandwidth is of the pool that engines share: say its size with --kv-shared")
    return None


def deployment_of(
    model: str,
    cluster_options: dict[str, str | None],
    engine_options: EngineOptions,
    fleet: FleetOptions,
    life_options: LifeOptions,
    progress: Callable[[str], None] = lambda text: None,
) -> Deployment:
    """The deployment that options describe. ``cluster_options``: gpu, node, fabric and cluster.

    On a described network, the engine's cluster has the GPUs of all engines, so that they share its links.

    Raises:
        InputError: an option cannot be used, the model does not fit, or vLLM sends no cache between these engines.
    """
    described = choose_cluster(**cluster_options, world_size=1)  # type: ignore[arg-type]
    config, name = config_of(model)
    shape = _shape_of(from_config(config, name), engine_options)
    plan = plan_of(engine_options, shape, described.gpu)
    plan.check(shape)
    shared_kv_of(fleet, plan)  # before engines are priced
    over = overheads.read(fleet.overheads) if fleet.overheads else None
    prices = tuple(map(Path, fleet.prices))
    life = life_of(life_options)
    replicas = life.scaling.most if life is not None and life.scaling is not None else fleet.replicas
    prefill_plan, prefill_cluster = prefill_plan_of(fleet, plan), cluster_options
    if fleet.prefill_gpu is not None:
        prefill_cluster = _with_prefill_gpu(cluster_options, fleet.prefill_gpu)
        gpu = choose_cluster(**prefill_cluster, world_size=1).gpu  # type: ignore[arg-type]
        prefill_plan = _with_defaults_of(prefill_plan, shape, gpu)
    all_gpus = replicas * plan.gpus + fleet.prefill_replicas * prefill_plan.gpus

    def build_engine(plan: ServingPlan, options: dict[str, str | None] = cluster_options) -> PricedEngine:
        gpus = max(all_gpus, plan.gpus) if described.network else plan.gpus
        cluster = choose_cluster(**options, world_size=gpus)  # type: ignore[arg-type]
        engine = build(shape, plan, cluster, over, prices)
        return engine if fleet.steps == "composed" else engine_with_steps(engine, config, fleet.steps, progress)

    deployment = engines_of(fleet, build_engine(plan), lambda: build_engine(prefill_plan, prefill_cluster))
    if deployment.prefill is not None and plan.kernels == "vllm":
        reason = refusal(deployment.prefill, deployment.engine)
        if reason is not None:
            raise InputError(reason)
    return dataclasses.replace(deployment, replicas=replicas, life=life)


def _shape_of(model: Model, options: EngineOptions) -> Model:
    """The model as the engine loads it: without its encoder of images or sound, if vLLM was told so."""
    if not options.language_model_only:
        return model
    if options.kernels != "vllm":
        raise InputError("--language-model-only is an option of vLLM; leave it out, or --kernels")
    outside = tuple(weight for weight in model.outside if weight.part != "encoder")
    return msgspec.structs.replace(model, outside=outside)


def _with_prefill_gpu(cluster_options: dict[str, str | None], gpu: str) -> dict[str, str | None]:
    """Options of the cluster of prefill engines on another GPU, in its own usual node."""
    if cluster_options["cluster"] is not None or cluster_options["node"] is not None:
        raise InputError(
            "--prefill-gpu takes its GPU's own node: name the other GPU by --gpu, without --cluster or --node"
        )
    return {**cluster_options, "gpu": gpu}


def _with_defaults_of(plan: ServingPlan, model: Model, gpu: Gpu) -> ServingPlan:
    """The plan with its engine's defaults for another GPU, where the user left them to the engine."""
    names = [field.name for field in dataclasses.fields(plan)]
    explicit = {name: getattr(plan, name) for name in names if name not in (*plan.defaulted, "defaulted")}
    return with_defaults(explicit, model, gpu)


def life_of(options: LifeOptions) -> Life | None:
    """The life cycle of engines; None if they neither scale nor fail.

    Raises:
        InputError: the bounds of the autoscaler are none.
    """
    if options.autoscale is None and options.mtbf is None:
        return None
    scaling = None if options.autoscale is None else _scaling(options.autoscale, options)
    return Life(scaling, options.start_up, options.mtbf, options.on_failure, options.detect, options.drain)


def _scaling(words: str, options: LifeOptions) -> Scaling:
    lowest, _, highest = words.partition(":")
    if not (lowest.isdecimal() and highest.isdecimal() and len(words) < 40):
        raise InputError(f"--autoscale is MIN:MAX engines, not {shortened(words)!r}; e.g. --autoscale 2:8")
    quantities.ENGINES.check(int(highest), "--autoscale")
    target = options.scale_target or _TARGETS[options.scale_on]
    return Scaling(int(lowest), int(highest), options.scale_on, target, options.scale_interval, options.cooldown)


def workload_of(options: LoadOptions, deployment: Deployment) -> Workload:
    """The workload that options describe; saved if they ask for it.

    Raises:
        InputError: it cannot be read, or its simulation would exceed the budget.
    """
    budget = budgets.budget_of(options.budget) if options.budget else budgets.Budget()
    if options.trace is not None:
        requests = traces.read_trace(
            options.trace, options.requests, unit=options.trace_unit, block_tokens=options.trace_block_tokens
        )
    elif options.saved is not None:
        requests = workload.read(options.saved)
        requests = requests.first(options.requests or len(requests))
    else:
        recipe = recipe_of(options)
        serving_effort.check_recipe(recipe, deployment, budget)
        requests = generate.generate(recipe)
    serving_effort.check_workload(requests, deployment, budget)
    if options.save_workload is not None:
        workload.write(requests, options.save_workload)
    return requests


def recipe_of(options: LoadOptions) -> generate.WorkloadRecipe:
    """What requests are drawn from."""
    lengths = generate.lengths_of(options.prompt), generate.lengths_of(options.output)
    fields: dict[str, Any] = {name: getattr(options, name) for name in _RECIPE}
    return generate.WorkloadRecipe(options.requests or 1000, *lengths, **fields)
