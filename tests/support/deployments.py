"""Deployments as an answer of `presim deploy` has them, without a search."""

from __future__ import annotations

from typing import Any

from presim.hardware.cluster_choice import choose_cluster
from presim.serving.answer.metrics import slo_of
from presim.serving.deployments.capacity import load_of
from presim.serving.deployments.deployment_point import DeploymentPoint
from presim.serving.deployments.deployment_ranking import deployment_of
from presim.serving.launching.bench_script import benchmark
from presim.serving.launching.folder import DeploymentFolder
from presim.serving.launching.launch_set import RouterProgram, launch_set_of
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan, Weights
from presim.serving.steps.times import PricedEngine, build
from presim.serving.weight_types import typed
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate


def engine_of(word: str, gpu: str, plan: ServingPlan, weights: Weights | None = None) -> PricedEngine:
    """An engine on a GPU, with the checkpoint's types unless others are named."""
    model = find(word)
    fields = typed(plan, model, weights, None)
    return build(model, fields, choose_cluster(gpu=gpu, world_size=fields.gpus))


def point(
    word: str = "llama3-8b", replicas: int = 1, prefill: int = 0, gpu: str = "h100-sxm", **plan: Any
) -> DeploymentPoint:
    """A deployment of a model."""
    weights = plan.pop("weights", None)
    engine = engine_of(word, gpu, ServingPlan(**{"max_num_seqs": 256, "max_model_len": 4096, **plan}), weights)
    gpus = (replicas + prefill) * engine.plan.gpus
    return DeploymentPoint(engine, 8, replicas, prefill, 50.0, 10.0, 800.0 * replicas, gpus)


def folder(deployed: DeploymentPoint, word: str = "llama3-8b", router: RouterProgram | None = None) -> DeploymentFolder:
    """Everything that is written for it, with a benchmark of 240 requests."""
    lengths = Lengths(200, spread=0.3), Lengths(20)
    load = load_of(generate(WorkloadRecipe(240, *lengths, rate=1.0)), slo_of(["ttft:500", "tpot:40"]))
    deployment = deployment_of(deployed)
    bench = benchmark(deployment, load, 10.0, 4.0)
    return DeploymentFolder(word, deployed.name, launch_set_of(deployed, word, router), deployment, bench, load.slo)
