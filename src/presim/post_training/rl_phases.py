"""Phases of a step, laid behind each other on their pools: rewards, log-probabilities, updates, the sync of weights."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from presim.post_training import balance
from presim.post_training.controller import ControllerSeconds
from presim.post_training.rl_job import RlJob
from presim.post_training.shared_parts import SharedParts, TrainingPhases, phases_key
from presim.post_training.training import TrainingPrices
from presim.post_training.weights import WeightSync

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_NO_CONTROLLER = ControllerSeconds()


@dataclasses.dataclass(frozen=True)
class PhasePrices:
    """Durations of everything but the rollout."""

    training: TrainingPrices
    sync: WeightSync
    load_s: float = 0.0  # state of the trainer from host memory, before it is used; colocated
    offload_s: float = 0.0  # and back
    controller: ControllerSeconds = _NO_CONTROLLER  # while which no GPU works for the step


@dataclasses.dataclass(frozen=True)
class Span:
    """A phase of a pool."""

    pool: str
    phase: str
    step: int
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.end_s - self.start_s


def rewarded_s(job: RlJob, end_times_s: Floats, start_s: float) -> float:
    """When the last reward of a batch is computed: by so many workers, each response when it is complete."""
    if not job.reward_s:
        return start_s
    free_s = [start_s] * min(job.reward_workers, len(end_times_s))
    done_s = start_s
    for end_s in np.sort(end_times_s).tolist():
        done_s = max(heapq.heappop(free_s), end_s) + job.reward_s
        heapq.heappush(free_s, done_s)
    return max(free_s)


class Phases:
    """Lays the phases of a step behind each other."""

    def __init__(
        self, job: RlJob, prices: PhasePrices, parts: SharedParts, number: int, start_s: float, ready_s: float,
        rewarded_s: float,
    ) -> None:  # fmt: skip
        self.job, self.prices, self.parts, self.number = job, prices, parts, number
        self.spans: list[Span] = []
        self.is_colocated = job.placement.is_colocated
        self.trainer = "all GPUs" if self.is_colocated else "training"
        self.start_s, self.now_s = start_s, start_s
        self.longest = 0  # tokens of the batch's longest sequence
        if self.is_colocated:
            self._add("rollout", ready_s)
        else:
            self._add("waiting for rollouts", ready_s)
        self._take("controller", prices.controller.rollout_s)
        self._add("reward", rewarded_s + prices.controller.rollout_s)

    def _add(self, phase: str, end_s: float) -> None:
        if end_s > self.now_s:
            self.spans.append(Span(self.trainer, phase, self.number, self.now_s, end_s))
            self.now_s = end_s

    def _take(self, phase: str, seconds: float, controller_s: float = 0.0) -> None:
        """A phase of so many seconds, after those in which the controller sends its batch and takes its answers."""
        if controller_s:
            self._add("controller", self.now_s + controller_s)
        self._add(phase, self.now_s + seconds)

    def train(self, lengths: Ints) -> float:
        """Log-probabilities and updates of a batch; returns when they end."""
        self._take("reload", self.prices.load_s)
        for phase in self.parts.training or self._shared_phases(lengths):
            self._take(*phase)
        return self.now_s

    def _shared_phases(self, lengths: Ints) -> TrainingPhases:
        key = phases_key(self.job, lengths)
        if key not in self.parts.phases:
            self.parts.phases[key] = self._training_phases(lengths)
        return self.parts.phases[key]

    def _training_phases(self, lengths: Ints) -> TrainingPhases:
        job, training, controller = self.job, self.prices.training, self.prices.controller
        self.longest = int(lengths.max())
        ranks = balance.shares(lengths, job.data_ranks, balances=job.trainer.balances)
        phases: list[tuple[str, float, float]] = []
        trainer = job.trainer
        sizes = self._sizes(ranks, job.trainer.logprob_tokens, job.trainer.logprob_sequences)
        if trainer.has_reward_model:
            phases.append(("reward model", training.values_s(*sizes), controller.reward_model_s))
        if trainer.recomputes_old:
            phases.append(("old log-probabilities", training.forward_s(*sizes), controller.old_s))
        if trainer.has_reference:
            reference_s = training.forward_s(*sizes, is_reference=True)
            phases.append(("reference log-probabilities", reference_s, controller.reference_s))
        if trainer.has_critic:
            phases.append(("values", training.values_s(*sizes), controller.values_s))
            critic_s = self._updates_s(ranks, training.critic_update_s)
            phases.append(("critic update", critic_s, controller.critic_update_s))
        phases.append(("update", self._updates_s(ranks, training.update_s), controller.update_s))
        return tuple(phases)

    def _updates_s(self, ranks: list[Ints], update_s: Callable[[Ints, Ints], float]) -> float:
        """All epochs: each rank's share is cut into as many mini-batches."""
        job = self.job
        pass_s = 0.0
        for number in range(job.batch.mini_batches):
            parts = [np.array_split(lengths, job.batch.mini_batches)[number] for lengths in ranks]
            pass_s += update_s(*self._sizes(parts, job.trainer.update_tokens, job.trainer.update_sequences))
        return job.batch.epochs * pass_s

    def _sizes(self, ranks: list[Ints], most_tokens: int, sequences: int | None) -> tuple[Ints, Ints]:
        """Tokens and sums of squared lengths of each micro-batch: [rank, micro-batch]."""
        packed = (
            balance.fixed_micro_batches(ranks, sequences, most_tokens)
            if sequences
            else balance.micro_batches(ranks, most_tokens)
        )
        if self.job.trainer.pads_to_longest:
            return balance.padded_sizes(packed, self.longest, most_tokens)
        return balance.sizes(packed, most_tokens if self.job.trainer.pads else 0)

    @property
    def overlapped_s(self) -> float:
        """Seconds of the transfer of weights during which engines generate."""
        sync = self.prices.sync
        return max(sync.seconds - sync.load_s, 0.0) if self.job.overlaps_sync else 0.0

    def sync(self, cut_s: float, all_end_s: float) -> float:
        """The transfer of weights, of which engines miss what comes after ``cut_s``; returns when they go on."""
        overlapped_s = self.overlapped_s
        if not self.is_colocated:
            generated_s = min(all_end_s, cut_s)
            end_s = cut_s + self.prices.sync.seconds - overlapped_s
            if overlapped_s:
                self._add("weight sync", self.now_s + overlapped_s)
            self._add("waiting for rollouts", cut_s)
            rollouts = [("rollout", self.start_s, generated_s), ("waiting for weights", generated_s, cut_s)]
            rollouts.append(("weight sync", cut_s, end_s))
            self.spans += [
                Span("rollout", phase, self.number, *window_s)
                for phase, *window_s in rollouts
                if window_s[1] > window_s[0]
            ]
        self._add("weight sync", self.now_s + self.prices.sync.seconds - overlapped_s)
        self._add("offload", self.now_s + self.prices.offload_s)
        return self.now_s
