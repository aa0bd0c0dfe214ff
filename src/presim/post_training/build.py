"""Make a job and its prices of a request: plans with defaults, pools, and what fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.models.description import Model
from presim.composition.plan import read_plan
from presim.errors import InputError, MisfitError
from presim.hardware import Cluster
from presim.post_training import filtering, role_memory
from presim.post_training.captured_step import CapturedStep, as_captured
from presim.post_training.controller import controller_seconds
from presim.post_training.logits import HeadSeconds, head_seconds, logits_seconds
from presim.post_training.placed_parts import copies_s, engine_of, routed_values, sync_of
from presim.post_training.response_lengths import group_share, response_lengths
from presim.post_training.rl_job import Placement, RlJob, SampleBatch, Trainer, check, pool_of, warm_steps
from presim.post_training.rl_phases import PhasePrices
from presim.post_training.rl_request import Fusion, RlRequest
from presim.post_training.shared_parts import Key, SharedParts
from presim.post_training.training import EvaluatePlan, TrainingPrices, price_training
from presim.post_training.training_graph import training_graph
from presim.post_training.turns import Turns, tool_seconds
from presim.serving.model_lookup import find

_DEGREES = (1, 2, 4, 8, 16, 32)
_LEAST_MICRO_TOKENS = 16384
_ROUND_TOKENS = 1024
_SPREAD_SEED = 0  # of the draw that says what a typical length is
_DRAWN = 4096


@dataclasses.dataclass(frozen=True)
class Built:
    """A job that fits, with its prices."""

    job: RlJob
    prices: PhasePrices
    phases: list[role_memory.PhaseMemory]
    notes: tuple[str, ...]  # what was chosen in place of options


def build_job(
    request: RlRequest,
    cluster: Cluster,
    progress: Callable[[str], None] = lambda text: None,
    parts: SharedParts | None = None,
    framework: EvaluatePlan | None = None,
    captured: CapturedStep | None = None,
) -> Built:
    """The job that a request describes; what ``parts`` has is taken from there, and the rest is added.

    ``framework``: captures its own trainer by a plan; None: training steps are composed. ``captured``: a step that
    takes their place.

    Raises:
        InputError: batches do not divide, a role does not fit its GPUs, or lengths are above what a side takes.
    """
    model = find(request.model)
    placement = _placement(request, cluster)
    batch = _batch(request)
    parts = parts or SharedParts()
    engine, notes = engine_of(request, model, cluster, placement, batch, parts)
    pool = pool_of(cluster, placement.train_gpus, "training")
    sync = sync_of(request, model, engine, cluster, placement, parts)
    refusal = None
    for context in (request.cp,) if request.cp else _contexts(model, pool, request):
        trainer = _trainer(request, batch, context, placement.train_gpus // (request.tp * request.pp))
        job = RlJob(
            request.model, cluster, batch, placement, trainer, engine, request.algorithm, request.reward_seconds,
            request.reward_workers, request.assignment, request.sleep_level, request.overlap_sync,
            request.steps or _steps(placement), request.seed,
        )  # fmt: skip
        check(job)
        if request.model not in parts.graphs:
            parts.graphs[request.model] = training_graph(request.model)
        graph = parts.graphs[request.model]
        try:
            training = _priced(job, graph, pool, progress, parts.prices, framework)
            training = as_captured(training, captured, pool.world_size) if captured else training
            trainer_state = role_memory.trainer_bytes(job, graph, training)
            phases = (role_memory.phases_of if request.force else role_memory.check)(job, trainer_state)
        except InputError as error:
            refusal = refusal or error
            if request.micro_tokens and isinstance(error, MisfitError):
                break  # a GPU has as many tokens at each degree
            continue
        if not request.cp and context > 1:
            notes.append(f"Context parallelism of {context} (--cp) was chosen: the smallest that fits.")
        if captured:
            notes.append(f"Updates and log-probabilities are scaled to the captured step of {captured.name} (--train).")
        load_s, offload_s = copies_s(job, trainer_state, request)
        controller = controller_seconds(request.controller, batch, trainer, routed_values(request, model))
        return Built(job, PhasePrices(training, sync, load_s, offload_s, controller), phases, tuple(notes))
    assert refusal is not None
    raise refusal


def _steps(placement: Placement) -> int:
    """Steps until the pools are full, and four more; one of those that are all alike."""
    return warm_steps(placement) + 4 if placement.staleness else 1


def _priced(
    job: RlJob,
    graph: OperatorGraph,
    pool: Cluster,
    progress: Callable[[str], None],
    table: dict[Key, TrainingPrices],
    framework: EvaluatePlan | None,
) -> TrainingPrices:
    trainer, model = job.trainer, job.engine.model
    key = (trainer.plan, pool.world_size, trainer.update_tokens, trainer.logprob_tokens, _typical_length(job.batch))
    if key not in table:
        plan, _, update_tokens, forward_tokens, length = key
        table[key] = price_training(graph, plan, pool, update_tokens, forward_tokens, length, progress, framework)
    share = 1 / (trainer.plan.tensor * trainer.plan.context)
    logits = logits_seconds(trainer.logits, pool).scaled(model.vocabulary * share)
    head = HeadSeconds()
    if trainer.plan.pipeline == 1:  # of several stages, one has the output layer, and each other more of the rest
        head = head_seconds(model.hidden, model.vocabulary, pool).scaled(share)
    return dataclasses.replace(table[key], logits=logits, head=head)


def _typical_length(batch: SampleBatch) -> int:
    """The length in which an average token lies: attention's work for a token depends on it."""
    rng = np.random.default_rng(_SPREAD_SEED)
    lengths = (batch.prompt.draw(rng, _DRAWN) + batch.response.draw(rng, _DRAWN)).astype(float)
    return int((lengths**2).sum() / lengths.sum())


def _placement(request: RlRequest, cluster: Cluster) -> Placement:
    if request.gpus not in (None, cluster.world_size):
        raise InputError(
            f"the pools of the placement have {request.gpus} GPUs, and the cluster {cluster.world_size}; change one of "
            "both"
        )
    if request.placement == "colocated":
        if request.overlap_sync:
            raise InputError(
                "--overlap-sync is of engines on GPUs of their own; add --placement separate, or leave it out"
            )
        if request.rollout_gpus or request.staleness or request.partial:
            raise InputError(
                "--rollout-gpus, --staleness and --partial are of separate pools; add --placement separate, or leave "
                "them out"
            )
        return Placement(cluster.world_size, cluster.world_size)
    rollout_gpus = request.rollout_gpus or cluster.world_size // 2
    if cluster.world_size == 1:
        raise InputError("separate pools take two GPUs or more; name more, or leave out --placement separate")
    if not 0 < rollout_gpus < cluster.world_size:
        raise InputError(
            f"{rollout_gpus} of {cluster.world_size} GPUs cannot generate while others train; use --rollout-gpus of 1 "
            f"to {cluster.world_size - 1}"
        )
    pool_of(cluster, rollout_gpus, "rollout")
    if request.partial and not request.staleness:
        raise InputError("--partial interrupts responses that go on with newer weights; add --staleness 1 or more")
    return Placement(
        cluster.world_size - rollout_gpus, rollout_gpus, is_colocated=False, staleness=request.staleness,
        is_partial=request.partial,
    )  # fmt: skip


def _batch(request: RlRequest) -> SampleBatch:
    mini_batch = request.mini_batch or request.prompts
    if request.prompts % mini_batch:
        raise InputError(
            f"{request.prompts} prompts do not divide into mini-batches of {mini_batch} "
            f"({request.prompts} % {mini_batch} = {request.prompts % mini_batch}); use a --mini-batch that divides them"
        )
    batch = SampleBatch(
        request.prompts, request.samples, response_lengths(request.prompt_tokens), response_lengths(request.response),
        request.prompts // mini_batch, request.epochs,
        Turns(request.turns, *tool_seconds(request.tool_seconds), request.tool_tokens or 0),
        request.keep, request.round_prompts or request.prompts, request.spare_prompts or 0,
        request.cut_tail, group_share(request.response),
    )  # fmt: skip
    filtering.check(batch)
    if request.round_prompts and request.keep == 1:
        raise InputError("--round-prompts is of a filter that drops prompts; add --keep, e.g. --keep 0.6")
    if request.keep < 1 and (request.staleness or request.partial):
        raise InputError(
            f"a filter of prompts (--keep {request.keep:g}) is simulated on-policy alone; leave out --staleness and "
            "--partial, or --keep"
        )
    if request.turns == 1 and (request.tool_tokens or request.tool_seconds != "0"):
        raise InputError("--tool-seconds and --tool-tokens are of what comes between turns; add --turns 2 or more")
    if (request.spare_prompts or request.cut_tail) and (
        request.staleness or request.partial or request.keep < 1 or request.turns > 1
    ):
        raise InputError(
            "responses are aborted (--spare-prompts, --cut-tail) on-policy alone, without --keep and --turns; leave "
            "out one of both"
        )
    if request.turns > 1 and request.partial:
        raise InputError("responses of several --turns are not interrupted here; leave out --partial, or --turns")
    return batch


def _contexts(model: Model, pool: Cluster, request: RlRequest) -> list[int]:
    """Context-parallel degrees that divide the heads and the pool."""
    ranks = pool.world_size // (request.tp * request.pp)
    return [
        degree
        for degree in _DEGREES
        if not ranks % degree and all(heads % (degree * request.tp) == 0 for heads in model.heads)
    ] or [1]


def _trainer(request: RlRequest, batch: SampleBatch, context: int, sharers: int) -> Trainer:
    most_tokens = batch.longest * max(request.micro_sequences or 1, request.logprob_sequences or 1)
    tokens = request.micro_tokens or max(
        -(-most_tokens // context // _ROUND_TOKENS) * _ROUND_TOKENS, _LEAST_MICRO_TOKENS
    )
    is_hybrid = 0 < request.shard < sharers and request.dp_style == "fsdp2"
    fields: dict[str, Any] = {
        "sequence": tokens * context,
        "context": context,
        "context_style": "ulysses",
        "tensor": request.tp,
        "pipeline": request.pp,
        "virtual": request.vpp,
        "stages": request.stages or (),
        "routing": request.routing,
        "expert_exchange": request.expert_exchange,
        "offload_optimizer": request.offload_optimizer,
        "reshard": request.reshard,
        "expert": request.ep,
        "data_style": "hsdp" if is_hybrid else request.dp_style,
        "shard": request.shard if is_hybrid else 0,
        "recompute": request.recompute,
        "sequence_parallel": request.tp > 1,
        "passes": ("fuse-cross-entropy", *(f"fuse-{part}" for part in _fusions(request))),
        "attention": "auto" if request.dp_style == "zero1" else "flash",  # verl's FSDP models use flash-attention 2
    }
    return Trainer(
        read_plan(None, fields),
        tokens * context,
        (request.logprob_tokens or tokens) * context,
        request.old_logprobs,
        request.algorithm in ("grpo", "ppo") if request.reference is None else request.reference,
        request.algorithm == "ppo" if request.critic is None else request.critic,
        request.reward_model,
        frozenset(request.offload),
        request.micro_sequences,
        request.logprob_sequences or request.micro_sequences,
        request.pads,
        request.pads_to_longest,
        request.balance,
        request.lora_rank is not None,
        request.logits,
    )


def _fusions(request: RlRequest) -> tuple[Fusion, ...]:
    """Parts of a layer with a kernel of their own: Megatron's layers are Transformer Engine's."""
    if request.fusions is not None:
        return request.fusions
    return ("norm", "rotary", "activation") if request.dp_style == "zero1" else ()
