"""Memory of each role in each phase, on the fullest GPU of each pool."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.models.description import elements
from presim.errors import MisfitError
from presim.post_training.rl_job import RlJob, ScoringPool, Trainer
from presim.result import Memory
from presim.units import GIB

_SHARDED_PARAMETER_BYTES = 4  # of composed FSDP: fp32, gathered as bf16
_REFERENCE_BYTES = 2  # bf16: no update rounds it


class PhaseMemory(msgspec.Struct, frozen=True):
    """What is on the fullest GPU of a pool in a phase."""

    pool: str
    phase: str
    parts: dict[str, int]  # bytes by role and content
    capacity_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        """Whether it is at most what the GPU has."""
        return self.total_bytes <= self.capacity_bytes


@dataclasses.dataclass(frozen=True)
class TrainerBytes:
    """State of the trainer on its fullest GPU, bytes."""

    parameters: int
    optimizer: int
    reference: int  # the frozen policy, sharded as the trained one
    working: int  # gradients, activations, gathered parameters, and what the allocator reserves beside them
    outside_allocator: int  # context and communication buffers
    critic: int = 0  # its parameters and optimizer states
    reward_model: int = 0  # frozen, sharded as the trained policy


def trainer_bytes(job: RlJob, graph: OperatorGraph, memory: Memory, gpus: int | None = None) -> TrainerBytes:
    """The trainer's state, from the composed update of full micro-batches; ``gpus``: of its pool, if not the actor's.

    Roles on a pool that scores are none of the actor's.
    """
    trainer = job.trainer
    if gpus is None:
        trainer = _roles_on_actor_pool(job)
    category_bytes = {part.name: part.bytes for part in memory.by_category}
    parameters, optimizer = category_bytes.get("parameter", 0), category_bytes.get("optimizer_state", 0)
    outside_allocator = memory.outside_allocator_bytes
    plan = job.trainer.plan
    model_ranks = plan.tensor * plan.pipeline
    shards = (plan.shard or (gpus or job.placement.train_gpus) // model_ranks) * model_ranks
    if plan.data_style in ("fsdp2", "hsdp"):  # the category counts parameters that are gathered for a moment, too
        per_parameter = _REFERENCE_BYTES if job.trainer.trains_adapters else _SHARDED_PARAMETER_BYTES
        parameters = per_parameter * graph.parameter_count() // shards
        rank_parameters = graph.parameter_count() / shards
    else:
        rank_parameters = _rank_parameters(job)
    working = memory.peak_reserved_bytes - parameters - optimizer
    has_copy = trainer.has_reference and not job.trainer.trains_adapters  # else it is the base without adapters
    reference = int(_REFERENCE_BYTES * rank_parameters) if has_copy else 0
    critic = parameters + optimizer if trainer.has_critic else 0
    reward_model = int(_REFERENCE_BYTES * rank_parameters) if trainer.has_reward_model else 0
    return TrainerBytes(parameters, optimizer, reference, working, outside_allocator, critic, reward_model)


def _roles_on_actor_pool(job: RlJob) -> Trainer:
    """The trainer without models that are on pools of their own."""
    trainer, placement = job.trainer, job.placement
    return dataclasses.replace(
        trainer,
        has_reference=trainer.has_reference and not placement.scores_apart("reference"),
        has_critic=trainer.has_critic and not placement.scores_apart("critic"),
        has_reward_model=trainer.has_reward_model and not placement.scores_apart("reward"),
    )


def scoring_memory(job: RlJob, graph: OperatorGraph, pool: ScoringPool, memory: Memory) -> PhaseMemory:
    """Memory of a pool that scores: models that are never updated need no gradients."""
    state = trainer_bytes(job, graph, memory, pool.gpus)
    gradients = sum(part.bytes for part in memory.by_category if part.name == "gradient")
    has_critic = "critic" in pool.roles
    working = {
        "gradients, activations, gathered parameters": state.working if has_critic else 0,
        "activations, gathered parameters (at most)": 0 if has_critic else max(state.working - gradients, 0),
    }
    parts = {
        "trainer's context": state.outside_allocator,
        "critic": state.critic if has_critic else 0,
        "reference": state.reference if "reference" in pool.roles else 0,
        "reward model": state.reward_model if "reward" in pool.roles else 0,
        **working,
    }
    return _phase(pool.label, "scores", parts, job.engine.memory.total)


def _rank_parameters(job: RlJob) -> float:
    """Parameters of a rank by model parallelism alone, without a data-parallel share."""
    plan, model = job.trainer.plan, job.engine.model
    experts = sum(count * elements(layer.weights, "experts") for layer, count in model.counts())
    dense = (model.parameters - experts) / plan.tensor
    return (dense + experts / max(plan.expert, plan.tensor)) / plan.pipeline


def phases_of(job: RlJob, trainer: TrainerBytes) -> list[PhaseMemory]:
    """Memory of the phases of each pool."""
    engine, offloads = job.engine.memory, job.trainer.offloads
    capacity = engine.total
    models = {"critic": trainer.critic, "reward model": trainer.reward_model}
    resident = {"trainer's context": trainer.outside_allocator, **models}
    if "parameters" not in offloads:
        resident["parameters"] = trainer.parameters
    if "reference" not in offloads:
        resident["reference"] = trainer.reference
    if "optimizer" not in offloads:
        resident["optimizer states"] = trainer.optimizer
    serving = {"engine's weights": engine.weights, "KV cache": engine.cache, "engine's working memory": _working(job)}
    updating = {
        "trainer's context": trainer.outside_allocator,
        "parameters": trainer.parameters,
        "optimizer states": trainer.optimizer,
        "gradients, activations, gathered parameters": trainer.working,
        **({} if "reference" in offloads else {"reference": trainer.reference}),
        **models,
    }
    asleep = serving if job.sleep_level == 0 else {"sleeping engine's context": engine.reserved}
    placement = job.placement
    if placement.has_switches:
        pool = placement.training_pool
        phases = [
            _phase(pool, "rollout", {**serving, **resident}, capacity),
            _phase(pool, "update", {**updating, **asleep}, capacity),
        ]
        return phases + ([_phase("rollout", "rollout", serving, capacity)] if placement.is_hybrid else [])
    return [
        _phase("rollout", "rollout", serving, capacity),
        _phase("training", "update", updating, capacity),
    ]


def _working(job: RlJob) -> int:
    memory = job.engine.memory
    return memory.activations + memory.reserved


def _phase(pool: str, phase: str, parts: dict[str, int], capacity: int) -> PhaseMemory:
    return PhaseMemory(pool, phase, {name: size for name, size in parts.items() if size}, capacity)


def check(job: RlJob, trainer: TrainerBytes, scoring: Sequence[PhaseMemory] = ()) -> list[PhaseMemory]:
    """The phases' memory; ``scoring``: that of pools that score.

    Raises:
        MisfitError: a phase does not fit, with by how much and what would help.
    """
    phases = [*phases_of(job, trainer), *scoring]
    if sentences := misfits(job, trainer, phases):
        raise MisfitError(f"{sentences[0]}; --force predicts it anyway")
    return phases


def misfit_notes(job: RlJob, trainer: TrainerBytes, phases: Sequence[PhaseMemory]) -> list[str]:
    """Sentences about phases that do not fit, of a job that is predicted anyway."""
    return [f"This job cannot run: {sentence}." for sentence in misfits(job, trainer, phases)]


def misfits(job: RlJob, trainer: TrainerBytes, phases: Sequence[PhaseMemory]) -> list[str]:
    """What does not fit, by how much, and what would help: a part of a sentence for each such phase."""
    sentences = []
    for phase in phases:
        if not phase.fits:
            missing = (phase.total_bytes - phase.capacity_bytes) / GIB
            parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in phase.parts.items())
            sentences.append(
                f"the {phase.phase} does not fit {phase.pool}: {phase.total_bytes / GIB:.1f} GiB ({parts}) of "
                f"{phase.capacity_bytes / GIB:.1f}, {missing:.1f} too many; {_advice(job, trainer, phase, missing)}"
            )
    return sentences


def _advice(job: RlJob, trainer: TrainerBytes, phase: PhaseMemory, missing: float) -> str:
    choices = {
        "optimizer": trainer.optimizer / GIB,
        "parameters": trainer.parameters / GIB,
        "reference": trainer.reference / GIB,
    }
    unused = {name: size for name, size in choices.items() if name not in job.trainer.offloads}
    if phase.phase == "scores":
        return f"give the pool {phase.pool.removeprefix('scoring ')!r} more gpus, or use fewer --logprob-tokens"
    if phase.phase == "rollout" and unused:
        for name in unused:
            if unused[name] >= missing:
                return f"--offload {name} frees {unused[name]:.1f} GiB of it"
        freed = sum(unused.values())
        if freed >= missing:
            return f"--offload {','.join(choices)} frees {freed:.1f} GiB of it"
    if phase.phase == "rollout":
        share = job.engine.plan.gpu_memory_utilization - missing * GIB / phase.capacity_bytes
        return f"use --gpu-memory-utilization {max(share - 0.005, 0.01):.2f}, or a larger --rollout-tp"
    awake = (job.engine.memory.weights + job.engine.memory.cache) / GIB
    if job.placement.has_switches and job.sleep_level == 0 and awake >= missing:
        return f"--sleep-level 2 frees {awake:.1f} GiB of it"
    return "use fewer --micro-tokens, a larger --cp, --tp or --pp, or more training GPUs"
