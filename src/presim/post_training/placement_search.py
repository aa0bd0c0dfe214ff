"""Compare placements of a job on the same GPUs: pools and their sizes, plans of both sides, and staleness.

Placements share parts: a trainer's steps are composed once for a plan and a pool, and a rollout of engines is simulated
once where nothing interrupts it. They are taken in the order of an estimate on a few engines, until no estimate is
below the fastest step of at most its staleness and GPUs. Each that is taken is simulated on a few of its engines; the
fastest of them on all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from presim.errors import InputError
from presim.hardware import Cluster
from presim.post_training.build import Built, build_job
from presim.post_training.placement_space import Candidate, Value, candidates
from presim.post_training.rl_answer import Alternative, RlAnswer, answer
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_loop import simulate
from presim.post_training.rl_request import RlRequest
from presim.post_training.sampled_engines import estimate_s, sampled
from presim.post_training.shared_parts import SharedParts
from presim.post_training.training import EvaluatePlan

_CLOSE = 1.03  # of the fastest step on a few engines: placements that are simulated on all
_MOST_FINALISTS = 3  # on-policy; an asynchronous step takes many rollouts
_NOTE = (
    "{count:,} placements were compared, by an estimate first, then on two engines each; {finalists} of the fastest "
    "were simulated on all of theirs."
)


@dataclasses.dataclass(frozen=True)
class _Option:
    """A placement that is possible."""

    index: int  # among all
    candidate: Candidate
    built: Built
    estimate_s: float  # of its step: at least so long


def search(
    request: RlRequest,
    cluster: Cluster,
    price_per_gpu_hour: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
    framework: EvaluatePlan | None = None,
    vary: Mapping[str, Sequence[Value]] | None = None,
) -> tuple[RlAnswer, RlRequest, RlJob]:
    """The answer of the placement with the shortest step, with all placements beside it; its request and its job.

    All draw the same lengths. ``vary``: values of further knobs (`presim.post_training.placement_space`).

    Raises:
        InputError: no placement is possible; the reason is that of the first.
    """
    parts = SharedParts()
    options, alternatives = _possible(candidates(request, cluster, vary or {}), parts, framework, progress)
    if not options:
        raise InputError(alternatives[0].refusal)
    looks: list[tuple[float, _Option]] = []
    for option in sorted(options, key=lambda option: option.estimate_s):
        placement, listed = option.built.job.placement, alternatives[option.index]
        fastest_s = _fastest_s(alternatives, int(np.ceil(placement.staleness)), listed.gpus)
        if fastest_s is not None and option.estimate_s >= fastest_s:
            alternatives[option.index] = msgspec.structs.replace(listed, estimate_s=option.estimate_s)
            continue
        progress(f"simulating {placement.text}")
        sample, sample_parts = sampled(option.built, parts)
        look = answer(sample, simulate(sample.job, sample.prices, sample_parts))
        alternatives[option.index] = _simulated(listed, look, option, sample.job)
        looks.append((look.figures.step_time_s, option))
    looks.sort(key=lambda entry: entry[0])
    count = 1 if looks[0][1].built.job.placement.staleness else _MOST_FINALISTS
    finalists = [option for step_s, option in looks if step_s <= _CLOSE * looks[0][0]][:count]
    answers: list[tuple[RlAnswer, _Option]] = []
    for option in finalists:
        progress(f"simulating all engines of {option.candidate.text}")
        run = simulate(option.built.job, option.built.prices, parts)
        answers.append((answer(option.built, run, price_per_gpu_hour), option))
        listed = alternatives[option.index]
        alternatives[option.index] = _simulated(listed, answers[-1][0], option, option.built.job)
    best, option = min(answers, key=lambda entry: entry[0].figures.step_time_s)
    notes = [*best.notes, _NOTE.format(count=len(alternatives), finalists=len(finalists))]
    shown = msgspec.structs.replace(best, notes=notes, alternatives=marked_fronts(alternatives))
    return shown, option.candidate.request, option.built.job


def _possible(
    placements: Iterable[Candidate],
    parts: SharedParts,
    framework: EvaluatePlan | None,
    progress: Callable[[str], None],
) -> tuple[list[_Option], list[Alternative]]:
    """Placements that can be, with what an asynchronous step takes at least; and all of them, for the list."""
    options: list[_Option] = []
    alternatives: list[Alternative] = []
    for candidate in placements:
        progress(f"placement {len(alternatives) + 1}: {candidate.text}")
        listed = Alternative(placement=candidate.text, knobs=dict(candidate.knobs), gpus=candidate.cluster.world_size)
        try:
            built = build_job(candidate.request, candidate.cluster, parts=parts, framework=framework)
            options.append(_Option(len(alternatives), candidate, built, estimate_s(built, parts)))
        except InputError as error:
            listed = msgspec.structs.replace(listed, refusal=str(error))
        alternatives.append(listed)
    return options, alternatives


def _simulated(listed: Alternative, look: RlAnswer, option: _Option, simulated: RlJob) -> Alternative:
    """The placement with its figures; ``simulated``: the job, or a part of its engines and prompts."""
    figures, job = look.figures, option.built.job
    scale = job.batch.prompts / simulated.batch.prompts * simulated.placement.gpus / job.placement.gpus
    return msgspec.structs.replace(
        listed,
        step_time_s=figures.step_time_s,
        tokens_per_s_per_gpu=figures.tokens_per_s_per_gpu * scale,
        largest_staleness=figures.largest_staleness,
        rollout_idle_share=figures.rollout_idle_share,
        estimate_s=option.estimate_s,
        engines=simulated.replicas,
    )


def marked_fronts(alternatives: list[Alternative]) -> list[Alternative]:
    """The alternatives; marked is each that no other of at most its staleness and GPUs beats."""
    return [
        msgspec.structs.replace(
            alternative,
            is_on_front=alternative.step_time_s
            == _fastest_s(alternatives, alternative.largest_staleness or 0, alternative.gpus),
        )
        if alternative.step_time_s is not None
        else alternative
        for alternative in alternatives
    ]


def _fastest_s(alternatives: list[Alternative], staleness: int, gpus: int) -> float | None:
    """The shortest step of placements that are at most so stale, on at most so many GPUs."""
    return min(
        (
            alternative.step_time_s
            for alternative in alternatives
            if alternative.step_time_s is not None
            and (alternative.largest_staleness or 0) <= staleness
            and alternative.gpus <= gpus
        ),
        default=None,
    )
