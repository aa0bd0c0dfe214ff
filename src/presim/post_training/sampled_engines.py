"""A job on a few of its engines with their part of the prompts, beside training of whole batches: a quick look at it.

Engines of a pool are alike and get equal parts of a batch. A few of them show what all do, but for the tail: the
longest of all responses may be on another.
"""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np

from presim.post_training.build import Built
from presim.post_training.filtering import draw
from presim.post_training.idle_time import pool_gpus
from presim.post_training.rl_answer import RlAnswer, money_per_thousand_steps
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_phases import Phases
from presim.post_training.shared_parts import SharedParts, TrainingPhases, phases_key

_ENGINES = 2  # that are simulated
_EARLY = 0.25  # of a rollout, in which engines generate fastest: caches are short, and no engine is done


def sampled(built: Built, parts: SharedParts) -> tuple[Built, SharedParts]:
    """The job on a few engines, with parts whose training is that of whole batches; the job itself if it has no more.

    Prompts of the sample are the first of those of the job.
    """
    job = built.job
    engines = job.replicas
    if engines <= _ENGINES or job.batch.kept_share < 1 or job.batch.spare_prompts or job.batch.cut_share:
        return built, parts
    prompts = max(job.batch.prompts * _ENGINES // engines, 1)
    placement = dataclasses.replace(job.placement, rollout_gpus=_ENGINES * job.engine.plan.gpus)
    turns = dataclasses.replace(job.batch.turns, workers=_part(job.batch.turns.workers, engines))
    batch = dataclasses.replace(job.batch, prompts=prompts, turns=turns)
    reward_workers = _part(job.reward_workers, engines)
    sample = dataclasses.replace(job, placement=placement, batch=batch, reward_workers=reward_workers)
    training = training_phases(built, parts)
    return dataclasses.replace(built, job=sample), dataclasses.replace(parts, training=training)


def _part(workers: int, engines: int) -> int:
    """Workers for the engines that are simulated; none where their number is no limit."""
    return max(workers * _ENGINES // engines, 1) if workers else 0


def of_all_engines(look: RlAnswer, sample: RlJob, job: RlJob, price_per_gpu_hour: float | None) -> RlAnswer:
    """The answer of a job's few engines as that of all: amounts in proportion to prompts, and shares of all its GPUs.

    Energy is unknown: engines differ in how long they generate.
    """
    if sample is job:
        return look
    scale, gpus = job.batch.prompts / sample.batch.prompts, job.placement.gpus
    figures, per_gpu = look.figures, scale * sample.placement.gpus / gpus
    pools = pool_gpus(job.placement)
    return msgspec.structs.replace(
        look,
        placement=job.placement.text,
        prompts=job.batch.prompts,
        mini_batches=job.batch.mini_batches,
        pools=[msgspec.structs.replace(pool, gpus=pools[pool.name]) for pool in look.pools],
        figures=msgspec.structs.replace(
            figures,
            tokens_per_s_per_gpu=figures.tokens_per_s_per_gpu * per_gpu,
            responses_per_s=figures.responses_per_s * scale,
            preemptions=figures.preemptions * scale,
            recomputed_tokens=figures.recomputed_tokens * scale,
            kWh=None,
            money_per_thousand_steps=money_per_thousand_steps(price_per_gpu_hour, gpus, figures.step_time_s),
        ),
        idle=[
            msgspec.structs.replace(idle, share=idle.seconds * pools[idle.pool] / (figures.step_time_s * gpus))
            for idle in look.idle
        ],
        goodput=[
            msgspec.structs.replace(limit, tokens_per_s_per_gpu=limit.tokens_per_s_per_gpu * per_gpu)
            for limit in look.goodput
        ],
        tokens={name: round(count * scale) for name, count in look.tokens.items()},
    )


def training_phases(built: Built, parts: SharedParts) -> TrainingPhases:
    """The phases of training on a whole batch of the job."""
    job = built.job
    responses = draw(job.batch, 0, job.batch.prompts, np.random.default_rng(job.seed))
    lengths = responses.prompt + responses.length
    Phases(job, built.prices, parts, 0, 0.0, 0.0, 0.0).train(lengths)
    return parts.phases[phases_key(job, lengths)]


def estimate_s(built: Built, parts: SharedParts) -> float:
    """A step if no side waits for the other where it need not, and engines generate as fast as at their start."""
    job, prices = built.job, built.prices
    window_job: RlJob = sampled(built, parts)[0].job
    responses = draw(window_job.batch, 0, window_job.batch.prompts, np.random.default_rng(job.seed))
    window = parts.window(responses, window_job, job.seed)
    batch_parts = dataclasses.replace(parts, training=training_phases(built, parts))
    trained_s = Phases(job, prices, batch_parts, 0, 0.0, 0.0, 0.0).train(responses.length) + prices.offload_s
    rollout_s = float(window.end_s.max())
    if not job.placement.staleness:
        return rollout_s + trained_s + prices.sync.seconds
    early_s = _EARLY * rollout_s
    early_tokens = int(window.generated_at(early_s).sum())
    rollout_s = early_s * int(responses.length.sum()) / early_tokens if early_tokens else 0.0
    paused_s = prices.sync.load_s if job.overlaps_sync else prices.sync.seconds
    return max(rollout_s, trained_s) + paused_s
