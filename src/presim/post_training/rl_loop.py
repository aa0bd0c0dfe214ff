"""The outer simulation: groups of responses flow from the engines through rewards to training, step after step.

A window lies between two changes of the engines' weights. At its start, prompts are admitted up to the staleness bound,
and the engines' schedulers run. Training takes the groups that must be in this step, then those that ended first.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from presim.post_training.filtering import draw, generate_rounds
from presim.post_training.rl_job import RlJob
from presim.post_training.rl_phases import PhasePrices, Phases, Span, rewarded_s
from presim.post_training.rollout import OpenRollout, Responses, Window
from presim.post_training.shared_parts import SharedParts

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class TrainingStep:
    """A step of training: its batch, and what happened until the next weights were in the engines."""

    number: int
    start_s: float  # when the engines had the weights that it starts with
    end_s: float  # when they have the next
    trained_tokens: int  # of prompts and responses
    trained_responses: int
    generated_tokens: int  # in its window
    recomputed_tokens: int  # of interrupted responses, whose caches new weights invalidated
    staleness: Ints  # of each group of its batch: updates since its first token
    group_tokens: Ints  # of each group: of prompts and responses that it is trained on
    rank_busy_s: float  # sum over ranks of engines of the time until they have generated all, in its window
    rollout_tail_s: float  # from the moment half of the engines are done to the end of the batch's last response
    preemptions: int
    mean_response: float
    longest_response: int
    dropped_tokens: int = 0  # generated for prompts that a filter dropped
    tool_wait_s: float = 0.0  # sum over ranks of engines of the time before their ends in which tools answer alone


@dataclasses.dataclass(frozen=True)
class SimulatedRun:
    """All steps, and the phases of all pools."""

    steps: tuple[TrainingStep, ...]
    spans: tuple[Span, ...]
    in_flight_tokens: int  # generated for responses that no step has trained on when the simulation ends
    generated_tokens: int


@dataclasses.dataclass
class _State:
    """What changes from window to window."""

    now_s: float
    responses: Responses  # admitted, not trained on
    end_s: Floats  # when each was complete; infinite: it is not
    version: Ints  # of the weights at its first token
    admitted: int = 0  # groups


def simulate(job: RlJob, prices: PhasePrices, parts: SharedParts | None = None) -> SimulatedRun:
    """Simulate ``job.steps`` steps of training; parts that other placements have, too, are taken from ``parts``."""
    parts = parts or SharedParts()
    rng = np.random.default_rng(job.seed)
    nothing = np.zeros(0, np.int64)
    state = _State(0.0, Responses(nothing, nothing, nothing, nothing), np.zeros(0), nothing)
    steps, spans = [], []
    generated_tokens = 0
    for number in range(job.steps):
        if job.batch.kept_share < 1:
            step, phases = _filtered_step(job, prices, parts, state, number, rng)
        else:
            _admit(job, state, number, rng)
            step, phases = _step(job, prices, parts, state, number)
        steps.append(step)
        spans += phases
        generated_tokens += step.generated_tokens
    return SimulatedRun(tuple(steps), tuple(spans), int(state.responses.generated.sum()), generated_tokens)


def _admit(job: RlJob, state: _State, version: int, rng: np.random.Generator) -> None:
    """Admit as many prompts as the staleness bound lets start with these weights."""
    batch = job.batch
    last = math.floor((version + 1 + job.placement.staleness) * batch.prompts)
    if batch.spare_prompts:  # on-policy: those of the step before that were too many are gone
        last = state.admitted + batch.prompts + batch.spare_prompts
    responses = draw(batch, state.admitted, last - state.admitted, rng)
    state.responses = state.responses.with_added(responses)
    state.end_s = np.concatenate([state.end_s, np.full(len(responses), np.inf)])
    state.version = np.concatenate([state.version, np.full(len(responses), version)])
    state.admitted = last


def _step(
    job: RlJob, prices: PhasePrices, parts: SharedParts, state: _State, number: int
) -> tuple[TrainingStep, list[Span]]:
    is_live = np.isinf(state.end_s)
    live = state.responses.part(is_live)
    window, step_batch = _generate(job, prices, parts, state, number, live)
    timeline, stop_s, is_batch, is_trained = (
        step_batch.timeline,
        step_batch.stop_s,
        step_batch.is_batch,
        step_batch.is_trained,
    )
    next_s = timeline.sync(step_batch.cut_s, step_batch.all_end_s)
    generated = window.generated_at(stop_s - state.now_s)
    is_begun = generated > live.generated
    step = _summary(job, state, window, number, is_trained, step_batch.end_times_s, stop_s, next_s, generated)
    if _aborts(job):
        lost = int(generated.sum()) - int(state.responses.length[is_trained].sum())
        step = dataclasses.replace(step, dropped_tokens=lost)
        is_batch = np.ones(len(state.responses), np.bool_)
    _advance(state, is_live, is_batch, step_batch.end_times_s, generated, is_begun, number, next_s)
    return step, timeline.spans


@dataclasses.dataclass(frozen=True)
class _StepBatch:
    """The batch of a step, and until when engines generate beside it."""

    end_times_s: Floats  # of all responses; infinite: later than what is simulated
    is_batch: NDArray[np.bool_]
    is_trained: NDArray[np.bool_]  # of the batch, those that are not aborted
    timeline: Phases  # up to the end of training
    all_end_s: float  # when the last response ends, if nothing interrupts it
    cut_s: float  # when engines stop for new weights
    stop_s: float  # when they generate the last token that counts


def _aborts(job: RlJob) -> bool:
    return job.batch.spare_prompts > 0 or job.batch.cut_share > 0


def _generate(
    job: RlJob, prices: PhasePrices, parts: SharedParts, state: _State, number: int, live: Responses
) -> tuple[Window, _StepBatch]:
    """Engines' time from now on, and the batch that is taken from it.

    Where new weights or a full batch interrupt responses, no more is simulated than until then.
    """
    is_live = np.isinf(state.end_s)
    end_times_s = state.end_s.copy()
    if not (job.placement.is_partial or _aborts(job)):
        window = parts.window(live, job, job.seed + number)
        end_times_s[is_live] = state.now_s + window.end_s
        return window, _step_batch(job, prices, parts, state, number, end_times_s)
    rollout = OpenRollout(live, job, job.seed + number, pauses=True)
    while True:
        rollout.advance()
        end_times_s[is_live] = state.now_s + rollout.end_s
        is_batch = _batch(job, state, end_times_s, number)
        is_trained = is_batch & _is_in_time(job, end_times_s, is_batch)
        if np.isfinite(end_times_s[is_trained]).all():
            step_batch = _step_batch(job, prices, parts, state, number, end_times_s)
            if step_batch.stop_s - state.now_s <= rollout.until_s:
                return rollout.window(), step_batch


def _step_batch(
    job: RlJob, prices: PhasePrices, parts: SharedParts, state: _State, number: int, end_times_s: Floats
) -> _StepBatch:
    """The batch of a step whose responses end at these times, and its training."""
    is_batch = _batch(job, state, end_times_s, number)
    is_trained = is_batch & _is_in_time(job, end_times_s, is_batch)
    ready_s = max(float(end_times_s[is_trained].max()), state.now_s)
    scored_s = rewarded_s(job, end_times_s[is_trained], state.now_s, number)
    # an aborted response keeps its place in the batch, with no tokens
    lengths = np.where(is_trained, state.responses.prompt + state.responses.length, 0)[is_batch]
    timeline = Phases(job, prices, parts, number, state.now_s, ready_s, max(ready_s, scored_s))
    train_end_s = timeline.train(lengths)
    all_end_s = ready_s if _aborts(job) else float(end_times_s.max())
    sent_s = train_end_s + timeline.overlapped_s
    cut_s = sent_s if job.placement.is_partial else max(sent_s, all_end_s)
    stop_s = ready_s if _aborts(job) else cut_s
    return _StepBatch(end_times_s.copy(), is_batch, is_trained, timeline, all_end_s, cut_s, stop_s)


def _filtered_step(
    job: RlJob, prices: PhasePrices, parts: SharedParts, state: _State, number: int, rng: np.random.Generator
) -> tuple[TrainingStep, list[Span]]:
    """A step on-policy whose prompts are generated in rounds until enough pass the filter."""
    rounds = generate_rounds(job, state.admitted, job.seed + number, rng)
    responses, start_s = rounds.responses, state.now_s
    ready_s = start_s + rounds.seconds
    scored_s = rewarded_s(job, start_s + rounds.end_s, start_s, number)
    timeline = Phases(job, prices, parts, number, start_s, ready_s, max(ready_s, scored_s))
    next_s = timeline.sync(timeline.train(responses.prompt + responses.length), ready_s)
    state.admitted += len(rounds.windows) * job.batch.round_prompts
    state.now_s = next_s
    last = rounds.windows[-1]
    _, group = np.unique(responses.group, return_inverse=True)
    group_tokens = np.bincount(group, responses.prompt + responses.length).astype(np.int64)
    step = TrainingStep(
        number, start_s, next_s, int((responses.prompt + responses.length).sum()), len(responses),
        rounds.generated_tokens, 0, np.zeros(job.batch.prompts, np.int64), group_tokens,
        sum(float(window.rank_end_s.sum()) for window in rounds.windows),
        float(last.end_s.max() - np.median(last.rank_end_s)), sum(window.preemptions for window in rounds.windows),
        float(responses.length.mean()), int(responses.length.max()),
        rounds.generated_tokens - int(responses.length.sum()), sum(window.tool_wait_s for window in rounds.windows),
    )  # fmt: skip
    return step, timeline.spans


def _batch(job: RlJob, state: _State, end_times_s: Floats, version: int) -> NDArray[np.bool_]:
    """Responses of the groups of this step: those that would be too stale later, then those that end first.

    So many groups as are due by a step have to be trained on by then: what the steps until then cannot take has to be
    in this one.
    """
    groups, index = np.unique(state.responses.group, return_inverse=True)
    group_end_s = np.zeros(len(groups))
    np.maximum.at(group_end_s, index, end_times_s)
    group_version = np.full(len(groups), np.iinfo(np.int64).max)
    np.minimum.at(group_version, index, state.version)
    due = group_version + math.ceil(job.placement.staleness)  # the last step that may train on the group
    order = np.lexsort((groups, group_end_s))
    selected = np.zeros(len(groups), np.bool_)
    for last in range(version, version + math.ceil(job.placement.staleness) + 1):
        urgent = order[due[order] <= last]
        missing = len(urgent) - job.batch.prompts * (last - version) - int(selected[urgent].sum())
        room = job.batch.prompts - int(selected.sum())  # spare prompts are due, too, and dropped
        selected[urgent[~selected[urgent]][: min(max(missing, 0), room)]] = True
    later_groups = order[~selected[order]]
    selected[later_groups[: job.batch.prompts - int(selected.sum())]] = True
    return selected[index]


def _is_in_time(job: RlJob, end_times_s: Floats, is_batch: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Responses that are complete when so many of the batch are that the others are aborted."""
    end_times_s = np.where(is_batch, end_times_s, np.inf)
    count = int(is_batch.sum()) - math.floor(job.batch.cut_share * int(is_batch.sum()))
    order = np.argsort(end_times_s, kind="stable")
    is_kept = np.zeros(len(order), np.bool_)
    is_kept[order[:count]] = True
    return is_kept


def _summary(
    job: RlJob, state: _State, window: Window, number: int, is_batch: NDArray[np.bool_], end_times_s: Floats,
    cut_s: float, next_s: float, generated: Ints,
) -> TrainingStep:  # fmt: skip
    responses, live = state.responses, window.responses
    rank_end_s = np.minimum(window.rank_end_s, cut_s - state.now_s)
    lengths = responses.length[is_batch]
    tokens = (responses.prompt + responses.length)[is_batch]
    _, first, group = np.unique(responses.group[is_batch], return_index=True, return_inverse=True)
    half_done_s = float(np.median(rank_end_s))
    return TrainingStep(
        number,
        state.now_s,
        next_s,
        int(tokens.sum()),
        int(is_batch.sum()),
        int((generated - live.generated).sum()),
        int(live.generated.sum()),
        number - np.minimum(state.version[is_batch][first], number),
        np.bincount(group, tokens).astype(np.int64),
        float(rank_end_s.sum()),
        max(min(float(end_times_s[is_batch].max()), cut_s) - state.now_s - half_done_s, 0.0),
        window.preemptions,
        float(lengths.mean()),
        int(lengths.max()),
        tool_wait_s=window.tool_wait_s,
    )


def _advance(
    state: _State, is_live: NDArray[np.bool_], is_batch: NDArray[np.bool_], end_times_s: Floats, generated: Ints,
    is_begun: NDArray[np.bool_], number: int, next_s: float,
) -> None:  # fmt: skip
    """Take the batch out, and keep what the others have generated."""
    progress = state.responses.generated.copy()
    progress[is_live] = generated
    version = state.version.copy()
    waited = np.flatnonzero(is_live)[~is_begun]
    version[waited] = np.maximum(
        version[waited], number + 1
    )  # a response that has no token starts with the next weights
    state.end_s = np.where(progress == state.responses.length, end_times_s, np.inf)[~is_batch]
    state.responses = dataclasses.replace(state.responses, generated=progress).part(~is_batch)
    state.version = version[~is_batch]
    state.now_s = next_s
