"""Compare placements of a job on the same GPUs: pools and their sizes, plans of both sides, and staleness.

Placements share parts: a trainer's steps are composed once for a plan and a pool, and a rollout of engines is simulated
once where nothing interrupts it. They are taken in the order of an estimate on a few engines, until no estimate is
below the fastest step of at most its staleness and GPUs. Each that is taken is simulated on a few of its engines; the
fastest of them on all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from presim.errors import InputError
from presim.hardware import Cluster
from presim.post_training.build import Built, build_job
from presim.post_training.placement_space import Candidate, Value, candidates
from presim.post_training.placement_study import Placements, open_study, search_digest
from presim.post_training.rl_answer import Alternative, RlAnswer, answer
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_loop import simulate
from presim.post_training.rl_request import RlRequest
from presim.post_training.sampled_engines import estimate_s, sampled
from presim.post_training.shared_parts import SharedParts
from presim.post_training.training import EvaluatePlan
from presim.system.interrupts import caught

_CLOSE = 1.03  # of the fastest step on a few engines: placements that are simulated on all
_MOST_FINALISTS = 3  # on-policy; an asynchronous step takes many rollouts
_NOTE = (
    "{count:,} placements were compared, by an estimate first, then on two engines each; {finalists} of the fastest "
    "were simulated on all of theirs."
)
_INTERRUPTED = (
    "The search was interrupted after {count:,} placements, {simulated:,} of which were simulated on two engines. This "
    "is the fastest so far; with --study FILE a search goes on from there."
)


@dataclasses.dataclass(frozen=True)
class _Option:
    """A placement that is possible."""

    index: int  # among all
    candidate: Candidate
    estimate_s: float  # of its step: at least so long


@dataclasses.dataclass
class _Search:
    """What a search has so far."""

    parts: SharedParts
    framework: EvaluatePlan | None
    progress: Callable[[str], None]
    store: Placements
    built: dict[str, Built] = dataclasses.field(default_factory=dict)  # by the text of a placement
    alternatives: list[Alternative] = dataclasses.field(default_factory=list)  # all, as far as they are known
    options: list[_Option] = dataclasses.field(default_factory=list)
    looks: list[tuple[float, _Option]] = dataclasses.field(default_factory=list)  # step on a few engines

    def build(self, candidate: Candidate) -> Built:
        """The job of a placement; raises InputError where it cannot be."""
        if candidate.text not in self.built:
            self.built[candidate.text] = build_job(
                candidate.request, candidate.cluster, parts=self.parts, framework=self.framework
            )
        return self.built[candidate.text]


def search(
    request: RlRequest,
    cluster: Cluster,
    price_per_gpu_hour: float | None = None,
    progress: Callable[[str], None] = lambda text: None,
    framework: EvaluatePlan | None = None,
    vary: Mapping[str, Sequence[Value]] | None = None,
    study: str | os.PathLike[str] | None = None,
) -> tuple[RlAnswer, RlRequest, RlJob]:
    """The answer of the placement with the shortest step, with all placements beside it; its request and its job.

    All draw the same lengths. ``vary``: values of further knobs (`presim.post_training.placement_space`). ``study``: a
    file in which finished placements are stored, and from which the search goes on. After an interrupt the answer is
    that of the best placement so far.

    Raises:
        InputError: no placement is possible; the reason is that of the first. Or the study cannot be used.
    """
    vary = vary or {}
    with contextlib.ExitStack() as stack:
        store = Placements()
        if study is not None:
            store = stack.enter_context(open_study(study, search_digest(request, cluster, vary)))
        state = _Search(SharedParts(), framework, progress, store)
        with caught() as stop:
            _estimate(state, candidates(request, cluster, vary))
            if state.options:
                _look(state)
    stop.unless(state.options)
    if not state.options:
        raise InputError(state.alternatives[0].refusal)
    best, option, finalists = _best(state, price_per_gpu_hour, is_partial=stop.is_partial)
    count = len(state.alternatives)
    note = (
        _INTERRUPTED.format(count=count, simulated=len(state.looks))
        if stop.is_partial
        else _NOTE.format(count=count, finalists=finalists)
    )
    alternatives = marked_fronts(state.alternatives)
    shown = msgspec.structs.replace(best, notes=[*best.notes, note], alternatives=alternatives, partial=stop.is_partial)
    return shown, option.candidate.request, state.build(option.candidate).job


def _look(state: _Search) -> None:
    """Simulate placements on a few engines, in the order of their estimates, where these may be the fastest."""
    for option in sorted(state.options, key=lambda option: option.estimate_s):
        staleness, listed = option.candidate.request.staleness, state.alternatives[option.index]
        fastest_s = _fastest_s(state.alternatives, int(np.ceil(staleness)), listed.gpus)
        if fastest_s is not None and option.estimate_s >= fastest_s:
            continue
        stored = state.store.find(listed.placement)
        if stored is None or stored.step_time_s is None:
            state.progress(f"simulating {listed.placement}")
            built = state.build(option.candidate)
            sample, sample_parts = sampled(built, state.parts)
            look = answer(sample, simulate(sample.job, sample.prices, sample_parts))
            stored = _simulated(listed, look, built.job, sample.job)
            state.store.add(stored)
        state.alternatives[option.index] = stored
        assert stored.step_time_s is not None
        state.looks.append((stored.step_time_s, option))


def _best(state: _Search, price_per_gpu_hour: float | None, *, is_partial: bool) -> tuple[RlAnswer, _Option, int]:
    """The answer and the option of the fastest of few placements that are simulated whole, and how many these are.

    An interrupted search simulates the fastest so far alone, by its estimate if none was simulated.
    """
    looks = sorted(state.looks, key=lambda entry: entry[0])
    if not looks:
        fastest = min(state.options, key=lambda option: option.estimate_s)
        looks = [(fastest.estimate_s, fastest)]
    count = 1 if looks[0][1].candidate.request.staleness or is_partial else _MOST_FINALISTS
    finalists = [option for step_s, option in looks if step_s <= _CLOSE * looks[0][0]][:count]
    answers: list[tuple[RlAnswer, _Option]] = []
    for option in finalists:
        state.progress(f"simulating all engines of {option.candidate.text}")
        built = state.build(option.candidate)
        run = simulate(built.job, built.prices, state.parts)
        answers.append((answer(built, run, price_per_gpu_hour), option))
        listed = state.alternatives[option.index]
        state.alternatives[option.index] = _simulated(listed, answers[-1][0], built.job, built.job)
    best, option = min(answers, key=lambda entry: entry[0].figures.step_time_s)
    return best, option, len(finalists)


def _estimate(state: _Search, placements: Iterable[Candidate]) -> None:
    """List all placements, and what a step of those that can be takes at least."""
    for index, candidate in enumerate(placements):
        state.progress(f"placement {index + 1}: {candidate.text}")
        listed = Alternative(placement=candidate.text, knobs=dict(candidate.knobs), gpus=candidate.cluster.world_size)
        stored = state.store.find(candidate.text)
        if stored is not None:
            listed = msgspec.structs.replace(listed, refusal=stored.refusal, estimate_s=stored.estimate_s)
        else:
            try:
                estimate = estimate_s(state.build(candidate), state.parts)
                listed = msgspec.structs.replace(listed, estimate_s=estimate)
            except InputError as error:
                listed = msgspec.structs.replace(listed, refusal=str(error))
            state.store.add(listed)
        state.alternatives.append(listed)
        if listed.estimate_s is not None:
            state.options.append(_Option(index, candidate, listed.estimate_s))


def _simulated(listed: Alternative, look: RlAnswer, job: RlJob, simulated: RlJob) -> Alternative:
    """The placement with its figures; ``simulated``: the job, or a part of its engines and prompts."""
    figures = look.figures
    scale = job.batch.prompts / simulated.batch.prompts * simulated.placement.gpus / job.placement.gpus
    return msgspec.structs.replace(
        listed,
        step_time_s=figures.step_time_s,
        tokens_per_s_per_gpu=figures.tokens_per_s_per_gpu * scale,
        largest_staleness=figures.largest_staleness,
        rollout_idle_share=figures.rollout_idle_share,
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
