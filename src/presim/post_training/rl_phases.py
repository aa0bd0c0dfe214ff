"""Phases of a step, laid behind each other on their pools: rewards, log-probabilities, updates, the sync of weights."""

from __future__ import annotations

import dataclasses
import heapq

import numpy as np
from numpy.typing import NDArray

from presim.post_training.controller import ControllerSeconds
from presim.post_training.rl_job import RlJob
from presim.post_training.shared_parts import SharedParts, TrainingPhases, phases_key
from presim.post_training.training import TrainingPrices
from presim.post_training.training_phases import UPDATES, training_phases
from presim.post_training.weights import WeightSync

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_NO_CONTROLLER = ControllerSeconds()
_REWARDS = 1  # of the seed: draws of rewards differ from those of lengths


@dataclasses.dataclass(frozen=True)
class PhasePrices:
    """Durations of everything but the rollout."""

    training: TrainingPrices
    sync: WeightSync
    load_s: float = 0.0  # state of the trainer from host memory, before it is used; colocated
    offload_s: float = 0.0  # and back
    controller: ControllerSeconds = _NO_CONTROLLER  # while which no GPU works for the step
    scoring: tuple[TrainingPrices, ...] = ()  # by scoring pool


@dataclasses.dataclass(frozen=True)
class Span:
    """A phase of a pool."""

    pool: str
    phase: str
    step: int
    start_s: float
    end_s: float
    waiting_s: float = 0.0  # of it an average rank waits for slower ones

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.end_s - self.start_s


def rewarded_s(job: RlJob, end_times_s: Floats, start_s: float, number: int = 0) -> float:
    """When the last reward of the batch of a step is computed: by so many workers, each response when it is complete.

    ``number``: of the step, with which its rewards' seconds are drawn.
    """
    if not job.reward:
        return start_s
    free_s = [start_s] * min(job.reward_workers, len(end_times_s))
    seconds = job.reward.draw(np.random.default_rng((job.seed, number, _REWARDS)), (len(end_times_s),))
    for end_s, reward_s in zip(np.sort(end_times_s).tolist(), seconds.tolist()):
        heapq.heappush(free_s, max(heapq.heappop(free_s), end_s) + reward_s)
    return max(free_s)


class Phases:
    """Lays the phases of a step behind each other."""

    def __init__(
        self, job: RlJob, prices: PhasePrices, parts: SharedParts, number: int, start_s: float, ready_s: float,
        rewarded_s: float,
    ) -> None:  # fmt: skip
        self.job, self.prices, self.parts, self.number = job, prices, parts, number
        self.spans: list[Span] = []
        self.trainer = job.placement.training_pool
        self.scoring = [pool.label for pool in job.placement.scoring_pools]
        self.start_s, self.rewarded_s = start_s, rewarded_s
        self.pool_s = dict.fromkeys((self.trainer, *self.scoring), start_s)  # until when each pool has phases
        self._add("rollout" if job.placement.has_switches else "waiting for rollouts", ready_s)
        self._take("controller", prices.controller.rollout_s)
        self._add("reward", rewarded_s + prices.controller.rollout_s)

    @property
    def now_s(self) -> float:
        """Until when the actor's pool has phases."""
        return self.pool_s[self.trainer]

    def _add(self, phase: str, end_s: float, pool: str = "", waiting_s: float = 0.0) -> None:
        pool = pool or self.trainer
        if end_s > self.pool_s[pool]:
            self.spans.append(Span(pool, phase, self.number, self.pool_s[pool], end_s, waiting_s))
            self.pool_s[pool] = end_s

    def _take(
        self, phase: str, seconds: float, controller_s: float = 0.0, waiting_s: float = 0.0, pool: str = ""
    ) -> None:
        """A phase of so many seconds, after those in which the controller sends its batch and takes its answers."""
        pool = pool or self.trainer
        if controller_s:
            self._add("controller", self.pool_s[pool] + controller_s, pool)
        self._add(phase, self.pool_s[pool] + seconds, pool, waiting_s)

    def _meet(self, phase: str) -> None:
        """All pools but those that work for the engines alone wait until each is done."""
        end_s = max(self.pool_s.values())
        for pool in self.pool_s:
            self._add(phase, end_s, pool)

    def train(self, lengths: Ints) -> float:
        """Log-probabilities and updates of a batch; returns when they end.

        Pools score at the same time, and train at the same time.
        """
        self._take("reload", self.prices.load_s)
        self._meet("waiting for rollouts")
        phases = self.parts.training or self._shared_phases(lengths)
        for phase in phases:
            if phase.name not in UPDATES:
                self._take(*phase)
        self._meet("waiting for scores")
        for phase in phases:
            if phase.name in UPDATES:
                self._take(*phase)
        self._meet("waiting for updates")
        return self.now_s

    def _shared_phases(self, lengths: Ints) -> TrainingPhases:
        key = phases_key(self.job, lengths)
        if key not in self.parts.phases:
            prices = self.prices
            self.parts.phases[key] = training_phases(
                self.job, prices.training, prices.scoring, prices.controller, lengths
            )
        return self.parts.phases[key]

    @property
    def overlapped_s(self) -> float:
        """Seconds of the transfer of weights during which engines generate."""
        sync = self.prices.sync
        return max(sync.seconds - sync.load_s, 0.0) if self.job.overlaps_sync else 0.0

    def sync(self, cut_s: float, all_end_s: float) -> float:
        """The transfer of weights, of which engines miss what comes after ``cut_s``; returns when they go on."""
        overlapped_s = self.overlapped_s
        if self.job.placement.engine_gpus > 0:
            generated_s = min(all_end_s, cut_s)
            end_s = cut_s + self.prices.sync.seconds - overlapped_s
            if overlapped_s:
                self._add("weight sync", self.now_s + overlapped_s)
            self._add("waiting for rollouts", cut_s)
            waits_s = self.prices.offload_s  # engines on GPUs that switch begin after it, and all begin together
            rollouts = [("rollout", self.start_s, generated_s), ("waiting for weights", generated_s, cut_s)]
            rollouts += [("weight sync", cut_s, end_s), ("waiting for weights", end_s, end_s + waits_s)]
            self.spans += [
                Span("rollout", phase, self.number, *window_s)
                for phase, *window_s in rollouts
                if window_s[1] > window_s[0]
            ]
        self._add("weight sync", self.now_s + self.prices.sync.seconds - overlapped_s)
        self._add("offload", self.now_s + self.prices.offload_s)
        self._meet("waiting for rollouts")
        self._serve(min(all_end_s, cut_s))
        return self.now_s

    def _serve(self, generated_s: float) -> None:
        """Pools of an environment and a judge: they answer until all is generated or judged, then wait."""
        batch = self.job.batch
        for pool in self.job.placement.service_pools:
            is_judge = pool.role == "judge"
            calls = 1 if is_judge else batch.turns.count - 1  # of a response
            answers_s = calls * (self.job.reward if is_judge else batch.turns.answers).expected_s
            workers = self.job.reward_workers if is_judge else batch.turns.workers
            until_s = min(max(self.rewarded_s if is_judge else generated_s, self.start_s), self.now_s)
            busy_s = batch.responses * answers_s / workers if workers else until_s - self.start_s
            waiting_s = max(until_s - self.start_s - busy_s, 0.0)
            spans = [Span(pool.label, pool.role, self.number, self.start_s, until_s, waiting_s)]
            spans += [Span(pool.label, "waiting for weights", self.number, until_s, self.now_s)]
            self.spans += [span for span in spans if span.end_s > span.start_s]
