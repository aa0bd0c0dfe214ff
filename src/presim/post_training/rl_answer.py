"""The answer of `presim rl`: steps by phase, idle time, throughput, memory, energy and money."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from presim.hardware.power import shares
from presim.post_training.build import Built
from presim.post_training.idle_time import Goodput, IdleTime, goodput, idle_times, pool_gpus
from presim.post_training.rl_job import RlJob, warm_steps
from presim.post_training.rl_loop import SimulatedRun, TrainingStep
from presim.post_training.rl_phases import Span
from presim.post_training.role_memory import PhaseMemory
from presim.post_training.service_pools import ServicePool
from presim.system.files.field_bounds import Count, Integer, PerSecond, Real, Seconds, Share
from presim.units import GIB, seconds

SCHEMA = "presim-rl/1"
_J_PER_KWH = 3.6e6
_THOUSAND = 1000
_HOUR_S = 3600
# Interval: a step takes so many times as long as predicted. From published steps by sources, each of which is left out
# once: intervals of the others, widened until 8 of 9 left-out steps are inside (validation/results/rl-steps.md).
_LOW, _HIGH = 0.74, 1.55
_TRAINING = (
    "reward model", "old log-probabilities", "reference log-probabilities", "values", "critic update", "update",
)  # fmt: skip
_NOT_MODELLED = (
    "The Python time of the controller between phases is not modelled. Without --controller, batches reach all workers "
    "in no time; without --transfer packed, a colocated engine sleeps and wakes in no time.",
    "Advantages are computed in no time.",
    "Transfers of weights of each framework are as --transfer and --overlap-sync say; other ways are not modelled.",
)


class Phase(msgspec.Struct, frozen=True):
    """A phase of a pool in an average step."""

    pool: str
    phase: str
    seconds: float
    share: float  # of the step


class Figures(msgspec.Struct, frozen=True):
    """Figures of an average steady step."""

    step_time_s: float
    step_time_low_s: float
    step_time_high_s: float
    tokens_per_s_per_gpu: float  # trained tokens of prompts and responses
    responses_per_s: float
    rollout_tail_s: float
    rollout_idle_share: float  # of the rollout pool's GPU time while it generates for the step: engines that are done
    mean_response: float
    longest_response: int
    preemptions: float
    mean_staleness: float
    largest_staleness: int
    recomputed_tokens: float
    kWh: float | None
    money_per_thousand_steps: float | None


class Pool(msgspec.Struct, frozen=True):
    """A pool of GPUs and the roles on it."""

    name: str
    gpus: int
    roles: list[str]
    plan: str


class TimelineSpan(msgspec.Struct, frozen=True):
    """A phase on the clock."""

    pool: str
    phase: str
    step: int
    start_s: float
    end_s: float


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """A placement of a search; its figures are None if it is refused, or if its estimate is no better than others."""

    placement: str
    knobs: dict[str, str | Integer | Real] = {}
    gpus: Count = 0
    estimate_s: Seconds | None = None  # of its step, by which placements are ordered
    engines: Count = 0  # that were simulated; fewer than it has: on their part of the prompts
    step_time_s: Seconds | None = None
    tokens_per_s_per_gpu: PerSecond | None = None
    largest_staleness: Count | None = None
    rollout_idle_share: Share | None = None
    is_on_front: bool = False  # no placement that is at most as stale, on at most as many GPUs, is faster
    refusal: str = ""


class RlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    model: str
    gpu: str
    algorithm: str
    placement: str
    pools: list[Pool]
    prompts: int
    samples: int
    mini_batches: int
    steps: int  # simulated
    steady_from: int  # the first that the figures count
    figures: Figures
    phases: list[Phase]
    memory: list[PhaseMemory]
    weight_sync: dict[str, float]
    idle: list[IdleTime]  # by cause, the largest share of all GPU time first
    goodput: list[Goodput]  # of training, by limit of staleness
    timeline: list[TimelineSpan]
    tokens: dict[str, int]  # generated, trained, in flight at the end, dropped by a filter
    notes: list[str]
    not_modelled: list[str]
    alternatives: list[Alternative] = []  # of `--search`, this one among them
    partial: bool = False  # an interrupt ended the search before all placements were compared

    def __repr__(self) -> str:
        gpus = sum(pool.gpus for pool in self.pools)
        step = f"{seconds(self.figures.step_time_s)} a step"
        return f"<RlAnswer for {self.model} by {self.algorithm} on {gpus:,} {self.gpu}, {self.placement}: {step}>"

    settings: list[str] = []  # key=value in a framework's own words, of `--write`
    schema: str = SCHEMA

    @property
    def misfit(self) -> list[str]:
        """A sentence on a job that was predicted although it cannot run (``--force``); none where every phase fits."""
        phases = [
            f"the {phase.phase} on {phase.pool} by {(phase.total_bytes - phase.capacity_bytes) / GIB:.1f} GiB"
            for phase in self.memory
            if not phase.fits
        ]
        text = f"Does not fit: {', '.join(phases)}. The job cannot run; below is how long it would take"
        return [text] if phases else []


def answer(built: Built, run: SimulatedRun, price_per_gpu_hour: float | None = None) -> RlAnswer:
    """The answer of a simulated job; steps in which the pools fill are left out of its figures."""
    job, training = built.job, built.prices.training
    warm = min(warm_steps(job.placement), len(run.steps) - 1)
    steady = run.steps[warm:]
    spans = [span for span in run.spans if span.step >= warm]
    phases = _phases(spans, len(steady))
    figures = _figures(built, run, steady, phases, price_per_gpu_hour)
    phases = [msgspec.structs.replace(phase, share=phase.seconds / figures.step_time_s) for phase in phases]
    sync = built.prices.sync
    trained, dropped = (sum(getattr(step, name) for step in run.steps) for name in ("trained_tokens", "dropped_tokens"))
    return RlAnswer(
        model=job.model,
        gpu=job.cluster.gpu.id,
        algorithm=job.algorithm,
        placement=job.placement.text,
        pools=_pools(built),
        prompts=job.batch.prompts,
        samples=job.batch.samples,
        mini_batches=job.batch.mini_batches,
        steps=len(run.steps),
        steady_from=warm,
        figures=figures,
        phases=phases,
        memory=built.phases,
        weight_sync={
            "gather_s": sync.gather_s,
            "broadcast_s": sync.broadcast_s,
            "load_s": sync.load_s,
            "software_s": sync.software_s,
        },
        idle=idle_times(
            spans,
            len(steady),
            figures.step_time_s,
            job.placement,
            figures.rollout_idle_share,
            _tool_wait_share(job, steady, phases),
        ),
        goodput=goodput(steady, figures.step_time_s, job.placement.gpus),
        timeline=[TimelineSpan(span.pool, span.phase, span.step, span.start_s, span.end_s) for span in run.spans],
        tokens={
            "generated": run.generated_tokens,
            "trained": trained,
            "in_flight": run.in_flight_tokens,
            "dropped": dropped,
        },
        notes=list(built.notes),
        not_modelled=[*_NOT_MODELLED, *training.not_modelled],
    )


def _ranks(job: RlJob) -> int:
    """Ranks of all engines."""
    return job.replicas * (1 if job.engine.plan.pp > 1 else job.engine.plan.dp)


def _tool_wait_share(job: RlJob, steps: Sequence[TrainingStep], phases: list[Phase]) -> float:
    """The share of rollouts in which an average rank of the engines waits for its environment."""
    pool = job.placement.training_pool if job.placement.has_switches else "rollout"
    rollout_s = sum(phase.seconds for phase in phases if (phase.pool, phase.phase) == (pool, "rollout"))
    wait_s = sum(step.tool_wait_s for step in steps) / len(steps)
    return wait_s / (_ranks(job) * rollout_s) if rollout_s else 0.0


def _phases(spans: list[Span], steps: int) -> list[Phase]:
    seconds: dict[tuple[str, str], float] = {}
    for span in spans:
        seconds[span.pool, span.phase] = seconds.get((span.pool, span.phase), 0.0) + span.seconds
    return [Phase(pool, phase, total / steps, 0.0) for (pool, phase), total in seconds.items()]


def _figures(
    built: Built, run: SimulatedRun, steady: tuple[TrainingStep, ...], phases: list[Phase], price: float | None
) -> Figures:  # fmt: skip
    job, count = built.job, len(steady)
    step_s = (steady[-1].end_s - steady[0].start_s) / count
    by_phase = {(phase.pool, phase.phase): phase.seconds for phase in phases}
    gpus = pool_gpus(job.placement)
    training_gpu_s = sum(seconds * gpus[pool] for (pool, phase), seconds in by_phase.items() if phase in _TRAINING)
    rollout_pool = job.placement.training_pool if job.placement.has_switches else "rollout"
    rollout_s = by_phase.get((rollout_pool, "rollout"), 0.0)
    busy_s = sum(step.rank_busy_s - step.tool_wait_s for step in steady) / count
    ranks = _ranks(job)
    staleness = np.concatenate([step.staleness for step in steady])
    return Figures(
        step_s,
        _LOW * step_s,
        _HIGH * step_s,
        sum(step.trained_tokens for step in steady) / count / step_s / job.placement.gpus,
        sum(step.trained_responses for step in steady) / count / step_s,
        sum(step.rollout_tail_s for step in steady) / count,
        1 - busy_s / (ranks * rollout_s) if rollout_s else 0.0,
        sum(step.mean_response for step in steady) / count,
        max(step.longest_response for step in steady),
        sum(step.preemptions for step in steady) / count,
        float(staleness.mean()),
        int(staleness.max()),
        sum(step.recomputed_tokens for step in steady) / count,
        _kwh(built, step_s, training_gpu_s, busy_s / max(ranks, 1)),
        money_per_thousand_steps(price, job.placement.gpus, step_s),
    )


def money_per_thousand_steps(price: float | None, gpus: int, step_s: float) -> float | None:
    """What 1,000 steps cost on so many GPUs at a price for each of their hours; None: there is no price."""
    return None if price is None else price * gpus * step_s / _HOUR_S * _THOUSAND


def _kwh(built: Built, step_s: float, training_gpu_s: float, generating_s: float) -> float | None:
    """Energy of a step: GPUs that train as composed steps do, that decode, and that idle, with their part of nodes."""
    job, limit = built.job, built.job.cluster.gpu.power_w
    watts = built.prices.training.watts
    if not limit or watts is None:
        return None
    share = {name: float(shares()[name].share) for name in ("decode", "idle", "node")}
    placement = job.placement
    joules = training_gpu_s * watts
    joules += placement.rollout_gpus * generating_s * limit * share["decode"]
    idle_s = placement.gpus * step_s - training_gpu_s - placement.rollout_gpus * generating_s
    joules += max(idle_s, 0.0) * limit * share["idle"]
    return (joules + placement.gpus * step_s * limit * share["node"]) / _J_PER_KWH


def _pools(built: Built) -> list[Pool]:
    job = built.job
    plan = job.trainer.plan
    degrees = {"TP": plan.tensor, "CP": plan.context, "PP": plan.pipeline, "EP": plan.expert, "DP": job.data_ranks}
    train = f"{plan.data_style} {_degrees_text(degrees)}"
    train = f"{train}, {job.trainer.update_tokens // plan.context:,} tokens a micro-batch and GPU"
    engines = f"{job.replicas} engines as {job.engine.plan.text}"
    trainer = job.trainer
    presence = {"reference": trainer.has_reference, "critic": trainer.has_critic, "reward": trainer.has_reward_model}
    roles = ["actor", *(name for name, is_there in presence.items() if is_there)]
    placement = job.placement
    roles = [role for role in roles if role == "actor" or not placement.scores_apart(role)]
    if placement.has_switches:
        roles, train = [*roles, "rollout"], f"{train}; {engines}"
    pools = [Pool(placement.training_pool, placement.train_gpus, roles, train)]
    if placement.engine_gpus > 0:
        pools.append(Pool("rollout", placement.engine_gpus, ["rollout"], engines))
    for pool in placement.scoring_pools:
        degrees["DP"] = plan.data(pool.gpus)
        pools.append(Pool(pool.label, pool.gpus, list(pool.roles), f"{plan.data_style} {_degrees_text(degrees)}"))
    return [
        *pools,
        *(Pool(pool.label, pool.gpus, [pool.role], _service(job, pool)) for pool in placement.service_pools),
    ]


def _service(job: RlJob, pool: ServicePool) -> str:
    """How a pool answers, in words."""
    if pool.role == "judge":
        return f"{job.reward.text}, {job.reward_workers:,} at once"
    turns = job.batch.turns
    workers_text = f"{turns.workers:,} at once" if turns.workers else "any number at once"
    return f"{turns.count - 1} answers a response, {turns.answers.text} of {turns.tool_tokens:,} tokens, {workers_text}"


def _degrees_text(degrees: dict[str, int]) -> str:
    return " ".join(f"{name}{degree}" for name, degree in degrees.items() if degree > 1 or name == "DP")
