"""What a placement has beside its trainer: engines, transfers of weights, copies to the host, routers' choices."""

from __future__ import annotations

import dataclasses

from presim.composition.models.description import Model
from presim.errors import InputError
from presim.hardware import Cluster
from presim.post_training import role_memory
from presim.post_training.rl_job import Placement, RlJob, SampleBatch
from presim.post_training.rl_request import RlRequest
from presim.post_training.rollout_engine import rollout_engine
from presim.post_training.shared_parts import SharedParts
from presim.post_training.weights import WeightSync, host_copy_s, weight_sync
from presim.serving.steps.times import PricedEngine


def engine_of(
    request: RlRequest, model: Model, cluster: Cluster, placement: Placement, batch: SampleBatch, parts: SharedParts
) -> tuple[PricedEngine, list[str]]:
    """The engine of a request, and sentences about what was chosen in place of options.

    Raises:
        InputError: no engine holds a prompt with its response.
    """
    key = (tuple(sorted(request.engine.items())), placement.has_switches, cluster.nodes, cluster.gpus_per_node)
    if key not in parts.engines:
        engine, notes = rollout_engine(request, model, cluster, placement, batch, parts.engine_works)
        parts.engines[key] = engine, tuple(notes)
    engine, sentences = parts.engines[key]
    return engine, list(sentences)


def sync_of(
    request: RlRequest, model: Model, engine: PricedEngine, cluster: Cluster, placement: Placement, parts: SharedParts
) -> WeightSync:
    """The transfer of weights of a placement."""
    key = (engine.plan, dataclasses.replace(placement, staleness=0.0, is_partial=False), cluster.world_size)
    if key not in parts.syncs:
        parts.syncs[key] = weight_sync(
            model, engine, cluster, placement, transfer=request.transfer,
            adapter_rank=None if request.merge_adapters else request.lora_rank,
        )  # fmt: skip
    return parts.syncs[key]


def routed_values(request: RlRequest, model: Model) -> int:
    """Numbers of experts that a replayed token brings along: vLLM has them of all layers; none without replay.

    Raises:
        InputError: the model has no routers.
    """
    if not request.routing_replay:
        return 0
    if model.experts is None:
        raise InputError(f"{model.name} has no experts whose routing could be replayed; leave out --routing-replay")
    return model.layers * model.experts.chosen


def copies_s(job: RlJob, trainer_state: role_memory.TrainerBytes, request: RlRequest) -> tuple[float, float]:
    """Seconds to bring offloaded state to the GPU, and back: a frozen reference has a copy on the host anyhow.

    An engine at sleep level 1 goes the other way: its weights are on the host while the GPUs train. Published times of
    packed transfers have the way back among them.
    """
    if not job.placement.has_switches:
        return 0.0, 0.0
    offloads = job.trainer.offloads
    state = trainer_state.optimizer if "optimizer" in offloads else 0
    state += trainer_state.parameters if "parameters" in offloads else 0
    reference = trainer_state.reference if "reference" in offloads else 0
    back = 0 if request.transfer == "packed" else state
    asleep = job.engine.memory.weights if job.sleep_level == 1 else 0
    return host_copy_s(state + reference + asleep, job.cluster), host_copy_s(back + asleep, job.cluster)
