"""Seconds of scoring and training a batch, phase by phase, from the lengths of its sequences."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.post_training import balance
from presim.post_training.controller import ControllerSeconds
from presim.post_training.rl_job import RlJob, ScoringPool
from presim.post_training.shared_parts import TrainingPhase, TrainingPhases
from presim.post_training.training import PassKind, TrainingPrices

Ints = NDArray[np.int64]
UPDATES = ("critic update", "update")  # the other phases score


class BatchPhases:
    """Phases of one batch on the actor's pool or on one that scores."""

    def __init__(self, job: RlJob, training: TrainingPrices, lengths: Ints, pool: ScoringPool | None = None) -> None:
        self.job, self.training, self.pool = job, training, pool
        self.longest = int(lengths.max())
        ranks = job.trainer.plan.data(pool.gpus) if pool else job.data_ranks
        self.ranks = balance.shares(lengths, ranks, balances=job.trainer.balances)
        self.scored = self._sizes(self.ranks, job.trainer.logprob_tokens, job.trainer.logprob_sequences)

    def scores(self, controller: ControllerSeconds) -> TrainingPhases:
        """Passes that come before updates."""
        trainer, training, sizes = self.job.trainer, self.training, self.scored
        phases: list[TrainingPhase] = []
        if trainer.has_reward_model and self._has("reward"):
            phases.append(self._scored("reward model", "values", training.values_s(*sizes), controller.reward_model_s))
        if trainer.recomputes_old and self.pool is None:
            phases.append(self._scored("old log-probabilities", "old", training.forward_s(*sizes), controller.old_s))
        if trainer.has_reference and self._has("reference"):
            reference_s = training.forward_s(*sizes, is_reference=True)
            phases.append(self._scored("reference log-probabilities", "reference", reference_s, controller.reference_s))
        if trainer.has_critic and self._has("critic"):
            phases.append(self._scored("values", "values", training.values_s(*sizes), controller.values_s))
        return tuple(phases)

    def updates(self, controller: ControllerSeconds) -> TrainingPhases:
        """Updates of the models on the pool."""
        phases: list[TrainingPhase] = []
        if self.job.trainer.has_critic and self._has("critic"):
            phases.append(self._updated("critic update", controller.critic_update_s))
        if self.pool is None:
            phases.append(self._updated("update", controller.update_s))
        return tuple(phases)

    def _has(self, role: str) -> bool:
        if self.pool is not None:
            return role in self.pool.roles
        return all(role not in pool.roles for pool in self.job.placement.scoring_pools)

    def _scored(self, name: str, kind: PassKind, seconds: float, controller_s: float) -> TrainingPhase:
        return self._phase(name, seconds, controller_s, self.training.waiting_s(kind, *self.scored))

    def _phase(self, name: str, seconds: float, controller_s: float, waiting_s: float) -> TrainingPhase:
        return TrainingPhase(name, seconds, controller_s, waiting_s, self.pool.label if self.pool else "")

    def _updated(self, kind: PassKind, controller_s: float) -> TrainingPhase:
        """All epochs: each rank's share is cut into as many mini-batches."""
        job, update_s = self.job, self.training.update_s if kind == "update" else self.training.critic_update_s
        pass_s = waiting_s = 0.0
        for number in range(job.batch.mini_batches):
            parts = [np.array_split(lengths, job.batch.mini_batches)[number] for lengths in self.ranks]
            sizes = self._sizes(parts, job.trainer.update_tokens, job.trainer.update_sequences)
            pass_s += update_s(*sizes)
            waiting_s += self.training.waiting_s(kind, *sizes)
        return self._phase(kind, job.batch.epochs * pass_s, controller_s, job.batch.epochs * waiting_s)

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


def training_phases(
    job: RlJob,
    training: TrainingPrices,
    scoring: tuple[TrainingPrices, ...],
    controller: ControllerSeconds,
    lengths: Ints,
) -> TrainingPhases:
    """Phases of a batch on all pools: those that score, then updates. ``scoring``: prices by scoring pool.

    Raises:
        InputError: a sequence or a micro-batch has more tokens than its bound.
    """
    pools = [BatchPhases(job, training, lengths)]
    pools += [BatchPhases(job, prices, lengths, pool) for prices, pool in zip(scoring, job.placement.scoring_pools)]
    scores = [phase for pool in pools for phase in pool.scores(controller)]
    return (*scores, *(phase for pool in pools for phase in pool.updates(controller)))
