"""Makes a deployment, a plan and a workload of the options of ``presim serve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from presim.composition.models.description import Model
    from presim.hardware import Gpu
    from presim.serving.deployments.deployment import Deployment
    from presim.serving.engines.engine import Life
    from presim.serving.plan import Plan
    from presim.serving.workloads.workload import Workload


def deployment_of(model: str, options: dict[str, Any], *, quiet: bool = False) -> Deployment:
    """The deployment that options describe; removes those of the cluster and of the plan.

    On a described network, the engine's cluster has the GPUs of all engines, so that they share its links.
    """
    import dataclasses

    from presim.cli.progress import progress
    from presim.hardware.choose import choose_cluster
    from presim.serving.deployments.deployment import Deployment
    from presim.serving.model import config_of, from_config
    from presim.serving.steps import overheads
    from presim.serving.steps.times import build
    from presim.verbs.capture_steps import engine_with_steps

    cluster_options = {name: options.pop(name) for name in ("gpu", "node", "fabric", "cluster")}
    described = choose_cluster(**cluster_options, world_size=1)
    config, name = config_of(model)
    shape = from_config(config, name)
    plan = plan_of(options, shape, described.gpu)
    plan.check(shape)

    over = overheads.read(options["overheads"]) if options["overheads"] else None
    prices = tuple(map(Path, options["prices"]))
    life = _life(options)
    replicas = life.scaling.most if life is not None and life.scaling is not None else options["replicas"]
    first = options["prefill_replicas"]
    first_plan = dataclasses.replace(plan, tp=options["prefill_tp"] or plan.tp)
    all_gpus = replicas * plan.gpus + first * first_plan.gpus

    def engine(plan: Plan) -> Any:
        gpus = max(all_gpus, plan.gpus) if described.network else plan.gpus
        composed_engine = build(shape, plan, choose_cluster(**cluster_options, world_size=gpus), over, prices)
        if options["steps"] == "composed":
            return composed_engine
        with progress(quiet) as say:
            return engine_with_steps(composed_engine, config, options["steps"], say)

    prefill = engine(first_plan) if first else None
    return Deployment(engine(plan), replicas, options["router"], prefill, first, life)


def _life(options: dict[str, Any]) -> Life | None:
    """The life cycle of engines; None if they neither scale nor fail."""
    from presim.errors import InputError
    from presim.serving.engines.engine import Life, Scaling
    from presim.system.files import shortened
    from presim.units import quantities

    words, scaling = options["autoscale"], None
    if words is None and options["mtbf"] is None:
        return None
    if words is not None:
        lowest, _, highest = words.partition(":")
        if not (lowest.isdecimal() and highest.isdecimal() and len(words) < 40):
            raise InputError(f"--autoscale is MIN:MAX engines, not {shortened(words)!r}; e.g. --autoscale 2:8")
        quantities.ENGINES.check(int(highest), "--autoscale")
        on = options["scale_on"]
        target = options["scale_target"] or (0.7 if on == "utilization" else 4.0)
        scaling = Scaling(int(lowest), int(highest), on, target, options["scale_interval"], options["cooldown"])
    return Life(
        scaling, options["start_up"], options["mtbf"], options["on_failure"], options["detect"], options["drain"]
    )


def plan_of(options: dict[str, Any], model: Model, gpu: Gpu) -> Plan:
    """Remove the options of `ENGINE` and return them as a plan for a model, with the engine's defaults for the GPU.

    Raises:
        InputError: an option has no value that an engine takes, or the checkpoint's types are not known.
    """
    import dataclasses

    from presim.serving.defaults import with_defaults
    from presim.serving.drafting import drafting_of
    from presim.serving.model import find
    from presim.serving.plan import Offload, Plan
    from presim.serving.weight_types import typed

    weights, experts = options.pop("weights"), options.pop("expert_weights")
    fields = {field.name for field in dataclasses.fields(Plan)}
    plan_fields = {name: options.pop(name) for name in list(options) if name in fields}
    method, tokens, likely, name = (
        options.pop(key) for key in ("speculative", "draft_tokens", "acceptance", "draft_model")
    )
    host, disk, link, disks = (
        options.pop(key) for key in ("kv_host", "kv_disk", "kv_host_bandwidth", "kv_disk_bandwidth")
    )
    offload = Offload(host, disk, link, disks) if host or disk else None
    drafting = drafting_of(method, tokens, likely, find(name) if name else None)
    plan_fields |= {"drafting": drafting, "offload": offload}
    named_fields = {name: value for name, value in plan_fields.items() if value is not None}
    types = typed(Plan(**named_fields), model, weights, experts)
    plan_fields |= {name: getattr(types, name) for name in ("weights", "expert_weights", "as_published")}
    return with_defaults(plan_fields, model, gpu)


def workload_of(options: dict[str, Any], deployment: Deployment) -> Workload:
    """The workload that options describe; saved if they ask for it.

    Raises:
        InputError: it cannot be read, or its simulation would exceed the budget.
    """
    from presim.serving import work
    from presim.serving.workloads import generate, traces, workload
    from presim.system import budgets

    budget = budgets.budget_of(options["budget"]) if options["budget"] else budgets.Budget()

    if options["trace"] is not None:
        request_stream = traces.read_trace(
            options["trace"],
            options["requests"],
            unit=options["trace_unit"],
            block_tokens=options["trace_block_tokens"],
        )
    elif options["saved"] is not None:
        request_stream = workload.read(options["saved"])
        request_stream = request_stream.first(options["requests"] or len(request_stream))
    else:
        names = (
            "rate",
            "arrivals",
            "burstiness",
            "ramp_to",
            "burst",
            "concurrency",
            "shared_prefix",
            "groups",
            "turns",
            "adapters",
            "structured",
            "grammar_ms",
        )
        recipe = generate.Recipe(
            options["requests"] or 1000,
            generate.lengths_of(options["prompt"]),
            generate.lengths_of(options["output"]),
            think_s=options["think_s"],
            seed=options["seed"],
            **{name: options[name] for name in names},
        )
        work.check_recipe(recipe, deployment, budget)
        request_stream = generate.generate(recipe)
    work.check_workload(request_stream, deployment, budget)
    if options["save_workload"] is not None:
        workload.write(request_stream, options["save_workload"])
    return request_stream
