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
from presim.post_training.sampled_engines import estimate_s, of_all_engines, sampled
from presim.post_training.shared_parts import SharedParts
from presim.post_training.training import EvaluatePlan
from presim.system.interrupts import Stop, caught

_CACHE = "gpu_memory_utilization"  # a knob
_CLOSE = 1.03  # of the fastest step on a few engines: placements that are simulated on all
_MOST_FINALISTS = 3  # on-policy; an asynchronous step takes many rollouts
_NOTE = (
    "{count:,} placements were compared, by an estimate first, then on two engines each; {finalists} of the fastest "
    "were simulated on all of theirs."
)
_INTERRUPTED = (
    "The search was interrupted after {count:,} placements, {simulated:,} of which were simulated on two engines. This "
    "is the fastest of them, on {engines}; with --study FILE a search goes on from there."
)


@dataclasses.dataclass(frozen=True)
class Option:
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
    price_per_gpu_hour: float | None
    built: dict[str, Built] = dataclasses.field(default_factory=dict)  # by the text of a placement
    alternatives: list[Alternative] = dataclasses.field(default_factory=list)  # all, as far as they are known
    options: list[Option] = dataclasses.field(default_factory=list)
    looks: list[tuple[float, Option]] = dataclasses.field(default_factory=list)  # step on a few engines
    fastest_look: tuple[RlAnswer, Option] | None = None  # of those that this call has simulated
    answers: list[tuple[RlAnswer, Option]] = dataclasses.field(default_factory=list)  # on all engines

    def build(self, candidate: Candidate) -> Built:
        """The job of a placement; raises InputError where it cannot be."""
        if candidate.text not in self.built:
            self.built[candidate.text] = build_job(
                candidate.request, candidate.cluster, parts=self.parts, framework=self.framework
            )
        return self.built[candidate.text]


_COLOCATED_OR_NOT = (
    "Between colocated and separate pools, published sweeps of verl, whose lengths are unknown, rank otherwise than "
    "predictions (regret 94% in the median); three of four of NeMo RL, with known lengths, agree. Measure a step of "
    "each before you choose between them."
)


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
        state = _Search(SharedParts(), framework, progress, store, price_per_gpu_hour)
        with caught() as stop:
            _estimate(state, candidates(request, cluster, vary))
            if state.options:
                _look(state)
                _simulate_fastest(state)
        stop.unless(state.options)
        if not state.options:
            raise InputError(state.alternatives[0].refusal)
        best, option = _best(state, stop)
    note = _NOTE.format(count=len(state.alternatives), finalists=len(state.answers))
    if stop.is_partial:
        engines = "all of its engines" if state.answers else "two of its engines"
        note = _INTERRUPTED.format(count=len(state.alternatives), simulated=len(state.looks), engines=engines)
    alternatives = marked_fronts(state.alternatives)
    notes = [*best.notes, *([_COLOCATED_OR_NOT] if _is_mixed(state) else []), note]
    shown = msgspec.structs.replace(best, notes=notes, alternatives=alternatives, partial=stop.is_partial)
    return shown, option.candidate.request, state.build(option.candidate).job


def _is_mixed(state: _Search) -> bool:
    """Whether both colocated and separate pools were possible."""
    return len({option.candidate.request.placement == "separate" for option in state.options}) > 1


def with_largest_cache(options: Sequence[Option]) -> list[Option]:
    """Of placements that differ in the engine's share of memory alone, the one with the most: its cache is largest.

    More blocks of the cache preempt fewer responses and slow none; where the trainer has no room beside the engine,
    the placement is no option.
    """
    largest: dict[tuple[tuple[str, Value], ...], Option] = {}
    for option in options:
        key = tuple((name, value) for name, value in option.candidate.knobs.items() if name != _CACHE)
        if key not in largest or _share(option) > _share(largest[key]):
            largest[key] = option
    return list(largest.values())


def _share(option: Option) -> float:
    return float(option.candidate.knobs.get(_CACHE, 0.0))


def _look(state: _Search) -> None:
    """Simulate placements on a few engines, in the order of their estimates, where these may be the fastest."""
    for option in sorted(with_largest_cache(state.options), key=lambda option: option.estimate_s):
        staleness, listed = option.candidate.request.staleness, state.alternatives[option.index]
        fastest_s = _fastest_s(state.alternatives, int(np.ceil(staleness)), listed.gpus)
        if fastest_s is not None and option.estimate_s >= fastest_s:
            continue
        stored = state.store.find(listed.placement)
        if stored is None or stored.step_time_s is None:
            stored = _look_at(state, option)
        state.alternatives[option.index] = stored
        assert stored.step_time_s is not None
        state.looks.append((stored.step_time_s, option))


def _look_at(state: _Search, option: Option) -> Alternative:
    """Simulate a placement on a few engines, and store what it takes."""
    listed = state.alternatives[option.index]
    state.progress(f"simulating {listed.placement}")
    built = state.build(option.candidate)
    sample, sample_parts = sampled(built, state.parts)
    look = answer(sample, simulate(sample.job, sample.prices, sample_parts), state.price_per_gpu_hour)
    look = of_all_engines(look, sample.job, built.job, state.price_per_gpu_hour)
    figures = look.figures
    if state.fastest_look is None or figures.step_time_s < state.fastest_look[0].figures.step_time_s:
        state.fastest_look = look, option
    stored = _simulated(listed, look, sample.job.replicas)
    state.store.add(stored)
    return stored


def _simulate_fastest(state: _Search) -> None:
    """Simulate few of the placements that are fastest on two engines on all of theirs."""
    looks = sorted(state.looks, key=lambda entry: entry[0])
    count = 1 if looks[0][1].candidate.request.staleness else _MOST_FINALISTS
    for option in [option for step_s, option in looks if step_s <= _CLOSE * looks[0][0]][:count]:
        state.progress(f"simulating all engines of {option.candidate.text}")
        built = state.build(option.candidate)
        all_engines = answer(built, simulate(built.job, built.prices, state.parts), state.price_per_gpu_hour)
        listed = state.alternatives[option.index]
        state.alternatives[option.index] = _simulated(listed, all_engines, built.job.replicas)
        state.answers.append((all_engines, option))


def _best(state: _Search, stop: Stop) -> tuple[RlAnswer, Option]:
    """The fastest placement that is simulated on all engines; after an interrupt, on two.

    If the interrupt came before the first of these, it is the on-policy one with the least estimate: its rollout and
    its training have been simulated for the estimate. Where there is none, the interrupt ends the call.
    """
    if state.answers:
        return min(state.answers, key=lambda entry: entry[0].figures.step_time_s)
    if state.fastest_look is None:
        on_policy = [option for option in state.options if not option.candidate.request.staleness]
        stop.unless(on_policy)
        option = min(on_policy, key=lambda option: option.estimate_s)
        state.alternatives[option.index] = _look_at(state, option)
    assert state.fastest_look is not None
    return state.fastest_look


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
            state.options.append(Option(index, candidate, listed.estimate_s))


def _simulated(listed: Alternative, simulated: RlAnswer, engines: int) -> Alternative:
    """The placement with the figures of an answer that so many engines were simulated for."""
    figures = simulated.figures
    return msgspec.structs.replace(
        listed,
        step_time_s=figures.step_time_s,
        tokens_per_s_per_gpu=figures.tokens_per_s_per_gpu,
        largest_staleness=figures.largest_staleness,
        rollout_idle_share=figures.rollout_idle_share,
        engines=engines,
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
