"""Compare placements of a job on the same GPUs: pools and their sizes, plans of both sides, and staleness.

Placements share parts: a trainer's steps are composed once for a plan and a pool, and a rollout of engines is simulated
once where nothing interrupts it. Placements on-policy are made of these without another simulation. Asynchronous ones
are simulated in the order of an optimistic estimate, until no estimate is below the fastest step of at most its
staleness and GPUs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from presim.errors import InputError
from presim.hardware import Cluster
from presim.post_training.build import Built, build_job
from presim.post_training.filtering import draw
from presim.post_training.placement_space import Candidate, Value, candidates
from presim.post_training.rl_answer import Alternative, RlAnswer, answer
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_loop import simulate
from presim.post_training.rl_phases import Phases
from presim.post_training.rl_request import RlRequest
from presim.post_training.shared_parts import SharedParts
from presim.post_training.training import EvaluatePlan

_EARLY = 0.25  # of a rollout, in which engines generate fastest: caches are short, and no engine is done


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
    best: tuple[RlAnswer, _Option] | None = None
    for option in sorted(options, key=lambda each: (each.built.job.placement.staleness > 0, each.estimate_s)):
        job = option.built.job
        staleness, gpus = int(np.ceil(job.placement.staleness)), option.candidate.cluster.world_size
        fastest_s = _fastest_s(alternatives, staleness, gpus)
        listed = alternatives[option.index]
        if job.placement.staleness and fastest_s is not None and option.estimate_s >= fastest_s:
            alternatives[option.index] = msgspec.structs.replace(listed, estimate_s=option.estimate_s)
            continue
        progress(f"simulating {job.placement.text}")
        shown = answer(option.built, simulate(job, option.built.prices, parts), price_per_gpu_hour)
        alternatives[option.index] = _simulated(listed, shown, option.estimate_s)
        if best is None or shown.figures.step_time_s < best[0].figures.step_time_s:
            best = shown, option
    assert best is not None  # the first is simulated
    shown, option = best
    marked = msgspec.structs.replace(shown, alternatives=marked_fronts(alternatives))
    return marked, option.candidate.request, option.built.job


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
            options.append(_Option(len(alternatives), candidate, built, _estimate_s(built, parts)))
        except InputError as error:
            listed = msgspec.structs.replace(listed, refusal=str(error))
        alternatives.append(listed)
    return options, alternatives


def _estimate_s(built: Built, parts: SharedParts) -> float:
    """A step of a placement if neither side waits for the other, and engines generate as fast as at their start."""
    job = built.job
    if not job.placement.staleness:
        return 0.0
    rng = np.random.default_rng(job.seed)
    responses = draw(job.batch, 0, job.batch.prompts, rng)
    window = parts.window(responses, job, job.seed)
    early_s = _EARLY * float(window.end_s.max())
    early_tokens = int(window.generated_at(early_s).sum())
    tokens = int(responses.length.sum())
    rollout_s = early_s * tokens / early_tokens if early_tokens else 0.0
    phases = Phases(job, built.prices, parts, 0, 0.0, 0.0, 0.0)
    trained_s = phases.train(responses.prompt + responses.length)
    return max(rollout_s, trained_s) + built.prices.sync.seconds


def _simulated(option: Alternative, shown: RlAnswer, estimate_s: float) -> Alternative:
    figures = shown.figures
    return msgspec.structs.replace(
        option,
        step_time_s=figures.step_time_s,
        tokens_per_s_per_gpu=figures.tokens_per_s_per_gpu,
        largest_staleness=figures.largest_staleness,
        rollout_idle_share=figures.rollout_idle_share,
        estimate_s=estimate_s or None,
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
