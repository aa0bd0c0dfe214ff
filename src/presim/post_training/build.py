"""Make a job and its prices of a request: plans with defaults, pools, and what fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from presim.composition.models.description import Model
from presim.composition.plan import read_plan
from presim.errors import InputError, MisfitError
from presim.hardware import Cluster
from presim.post_training import filtering, role_memory
from presim.post_training.answer_times import answer_times
from presim.post_training.captured_step import CapturedStep, as_captured
from presim.post_training.controller import controller_seconds
from presim.post_training.logits import HeadSeconds, head_seconds, logits_seconds
from presim.post_training.placed_parts import copies_s, engine_of, routed_values, sync_of
from presim.post_training.requested_pools import placement_of
from presim.post_training.response_lengths import group_share, response_lengths
from presim.post_training.rl_job import Placement, RlJob, SampleBatch, Trainer, check, pool_of, warm_steps
from presim.post_training.rl_phases import PhasePrices
from presim.post_training.rl_request import Fusion, RlRequest
from presim.post_training.shared_parts import SharedParts
from presim.post_training.training import EvaluatePlan, TrainingPrices, price_training
from presim.post_training.training_graph import training_graph
from presim.post_training.turns import Turns
from presim.result import Memory
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
    placement = placement_of(request, cluster)
    batch = _batch(request)
    parts = parts or SharedParts()
    engine, notes = engine_of(request, model, cluster, placement, batch, parts)
    pool = pool_of(cluster, placement.train_gpus, "training")
    sync = sync_of(request, model, engine, cluster, placement, parts)
    refusal = None
    for context in (request.cp,) if request.cp else _contexts(model, pool, request):
        trainer = _trainer(request, batch, context, placement.train_gpus // (request.tp * request.pp))
        job = RlJob(
            request.model, cluster, batch, placement, trainer, engine, request.algorithm,
            answer_times(str(request.reward_seconds), "--reward-seconds"), request.reward_workers,
            request.assignment, request.sleep_level, request.overlap_sync,
            request.steps or _steps(placement), request.seed,
        )  # fmt: skip
        check(job)
        try:
            trained = _trained(job, parts, progress, framework, captured, is_forced=request.force)
        except InputError as error:
            refusal = refusal or error
            if request.micro_tokens and isinstance(error, MisfitError):
                break  # a GPU has as many tokens at each degree
            continue
        if not request.cp and context > 1:
            notes.append(f"Context parallelism of {context} (--cp) was chosen: the smallest that fits.")
        if captured:
            notes.append(f"Updates and log-probabilities are scaled to the captured step of {captured.name} (--train).")
        notes += role_memory.misfit_notes(job, trained.state, trained.phases)
        load_s, offload_s = copies_s(job, trained.state, request)
        controller = controller_seconds(request.controller, batch, trainer, routed_values(request, model))
        prices = PhasePrices(trained.prices, sync, load_s, offload_s, controller, trained.scoring)
        return Built(job, prices, trained.phases, tuple(notes))
    assert refusal is not None
    raise refusal


@dataclasses.dataclass(frozen=True)
class _Trained:
    """Prices of the pools that train or score, and the memory of all phases."""

    prices: TrainingPrices
    scoring: tuple[TrainingPrices, ...]  # by scoring pool
    state: role_memory.TrainerBytes
    phases: list[role_memory.PhaseMemory]


def _trained(
    job: RlJob,
    parts: SharedParts,
    progress: Callable[[str], None],
    framework: EvaluatePlan | None,
    captured: CapturedStep | None,
    *,
    is_forced: bool,
) -> _Trained:
    """Price the pools of a job.

    Raises:
        InputError: a plan is invalid for its pool, or a phase does not fit unless ``is_forced``.
    """
    if job.model not in parts.graphs:
        parts.graphs[job.model] = training_graph(job.model)
    graph, placement = parts.graphs[job.model], job.placement
    pool = pool_of(job.cluster, placement.train_gpus, "training")

    def check_memory(memory: Memory) -> None:
        if not is_forced and captured is None:
            role_memory.check(job, role_memory.trainer_bytes(job, graph, memory))

    prices = _priced(job, pool, parts, progress, framework, check_memory)
    prices = as_captured(prices, captured, pool.world_size) if captured else prices
    scoring_clusters = [pool_of(job.cluster, scoring.gpus, scoring.name) for scoring in placement.scoring_pools]
    scoring = tuple(_priced(job, cluster, parts, progress) for cluster in scoring_clusters)
    state = role_memory.trainer_bytes(job, graph, prices.memory)
    scoring_memory = [
        role_memory.scoring_memory(job, graph, scoring_pool, pool_prices.memory)
        for scoring_pool, pool_prices in zip(placement.scoring_pools, scoring)
    ]
    if is_forced:
        return _Trained(prices, scoring, state, [*role_memory.phases_of(job, state), *scoring_memory])
    return _Trained(prices, scoring, state, role_memory.check(job, state, scoring_memory))


def _steps(placement: Placement) -> int:
    """Steps until the pools are full, and four more; one of those that are all alike."""
    return warm_steps(placement) + 4 if placement.staleness else 1


def _priced(
    job: RlJob,
    pool: Cluster,
    parts: SharedParts,
    progress: Callable[[str], None],
    framework: EvaluatePlan | None = None,
    check_memory: Callable[[Memory], None] = lambda memory: None,
) -> TrainingPrices:
    """Prices of a pool with the job's plan; ``check_memory`` is called with that of an update as soon as it is known.

    Raises:
        InputError: the plan is invalid for the pool, or ``check_memory`` refuses it.
    """
    trainer, model, graph = job.trainer, job.engine.model, parts.graphs[job.model]
    key = (trainer.plan, pool.world_size, trainer.update_tokens, trainer.logprob_tokens, _typical_length(job.batch))

    def remember(memory: Memory) -> None:
        parts.memories[key] = memory
        check_memory(memory)

    if key in parts.memories:
        check_memory(parts.memories[key])
    if key not in parts.prices:
        plan, _, update_tokens, forward_tokens, length = key
        parts.prices[key] = price_training(
            graph, plan, pool, update_tokens, forward_tokens, length, progress, framework, remember
        )
    share = 1 / (trainer.plan.tensor * trainer.plan.context)
    head_key = (trainer.logits, model.hidden, model.vocabulary, pool.gpu.id)
    if head_key not in parts.heads:
        head_s = head_seconds(model.hidden, model.vocabulary, pool)
        parts.heads[head_key] = logits_seconds(trainer.logits, pool), head_s
    logits, head = parts.heads[head_key]
    if trainer.plan.pipeline > 1:  # of several stages, one has the output layer, and each other more of the rest
        head = HeadSeconds()
    return dataclasses.replace(
        parts.prices[key], logits=logits.scaled(model.vocabulary * share), head=head.scaled(share)
    )


def _typical_length(batch: SampleBatch) -> int:
    """The length in which an average token lies: attention's work for a token depends on it."""
    rng = np.random.default_rng(_SPREAD_SEED)
    lengths = (batch.prompt.draw(rng, _DRAWN) + batch.response.draw(rng, _DRAWN)).astype(float)
    return int((lengths**2).sum() / lengths.sum())


def _batch(request: RlRequest) -> SampleBatch:
    mini_batch = request.mini_batch or request.prompts
    if request.prompts % mini_batch:
        raise InputError(
            f"{request.prompts} prompts do not divide into mini-batches of {mini_batch} "
            f"({request.prompts} % {mini_batch} = {request.prompts % mini_batch}); use a --mini-batch that divides them"
        )
    answers = answer_times(str(request.tool_seconds), "--tool-seconds")
    batch = SampleBatch(
        request.prompts, request.samples, response_lengths(request.prompt_tokens), response_lengths(request.response),
        request.prompts // mini_batch, request.epochs,
        Turns(request.turns, answers, request.tool_tokens or 0, request.tool_workers or 0),
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
    if request.turns == 1 and (request.tool_tokens or request.tool_workers or batch.turns.answers):
        raise InputError(
            "--tool-seconds, --tool-tokens and --tool-workers are of what comes between turns; add --turns 2 or more"
        )
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
