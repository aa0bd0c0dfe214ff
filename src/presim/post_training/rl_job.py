"""A job of reinforcement learning: its batch, its placement on pools of GPUs, and its two sides."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import msgspec

from presim.composition.plan import Plan
from presim.errors import InputError
from presim.hardware import Cluster
from presim.post_training.answer_times import AnswerTimes
from presim.post_training.logits import LogitsCode
from presim.post_training.response_lengths import longest
from presim.post_training.service_pools import ServicePool
from presim.post_training.turns import Turns
from presim.serving.steps.times import PricedEngine
from presim.serving.workloads.generate import Lengths

Algorithm = Literal["grpo", "dapo", "reinforce", "rloo", "ppo"]
_ONE_TURN = Turns()
_AT_ONCE = AnswerTimes()
Offloads = Literal["parameters", "optimizer", "reference"]
ScoringRole = Literal["reference", "critic", "reward"]
# Which engine generates a response: that with the fewest, or its part of the batch in the batch's order, where
# responses to one prompt are neighbours.
Assignment = Literal["balanced", "consecutive"]


@dataclasses.dataclass(frozen=True)
class SampleBatch:
    """What a step generates and trains on."""

    prompts: int  # of a step; each is a group of responses
    samples: int  # responses to each prompt
    prompt: Lengths
    response: Lengths
    mini_batches: int = 1  # updates of the optimizer in a pass over the batch
    epochs: int = 1  # passes over the batch
    turns: Turns = _ONE_TURN
    kept_share: float = 1.0  # of prompt groups that pass the filter of rewards; others are generated and dropped
    round_prompts: int = 0  # with a filter: prompts of each round of generation
    spare_prompts: int = 0  # begun beside those of a step; the groups that end last are aborted and dropped
    cut_share: float = 0.0  # of responses that are aborted when the others are complete, and dropped
    group_share: float = 0.0  # of the variance of log-lengths that lies between prompts; the rest, within their groups

    @property
    def responses(self) -> int:
        """Responses of a step."""
        return self.prompts * self.samples

    @property
    def longest(self) -> int:
        """Most tokens of a prompt with its response."""
        return longest(self.prompt) + longest(self.response) + self.turns.read_tokens


@dataclasses.dataclass(frozen=True)
class ScoringPool:
    """GPUs of their own for roles beside the actor, each with the actor's degrees."""

    name: str
    gpus: int
    roles: tuple[ScoringRole, ...]

    @property
    def label(self) -> str:
        """Its name beside those of other pools."""
        return f"scoring {self.name}"


@dataclasses.dataclass(frozen=True)
class Placement:
    """Which GPUs train, which generate and which score, and how far generation may run ahead."""

    train_gpus: int
    rollout_gpus: int  # all that generate
    is_colocated: bool = True  # both sides on the same GPUs, one after the other
    staleness: float = 0.0  # batches that may be generated ahead of training; 0: on-policy
    is_partial: bool = False  # responses are interrupted by new weights and go on with them; else these wait for them
    is_hybrid: bool = False  # training GPUs generate, too, beside others that only do so, and switch when a batch is
    scoring_pools: tuple[ScoringPool, ...] = ()
    service_pools: tuple[ServicePool, ...] = ()

    @property
    def has_switches(self) -> bool:
        """Whether the training GPUs generate before they train."""
        return self.is_colocated or self.is_hybrid

    @property
    def training_pool(self) -> str:
        """Name of the pool that the actor is on."""
        if self.is_hybrid:
            return "switching"
        if self.is_colocated:
            return "actor and rollout" if self.scoring_pools else "all GPUs"
        return "training"

    @property
    def engine_gpus(self) -> int:
        """GPUs that only generate."""
        return self.rollout_gpus - self.train_gpus if self.has_switches else self.rollout_gpus

    @property
    def gpus(self) -> int:
        """GPUs of all pools."""
        scoring_gpus = sum(pool.gpus for pool in self.scoring_pools)
        service_gpus = sum(pool.gpus for pool in self.service_pools)
        return self.train_gpus + max(self.engine_gpus, 0) + scoring_gpus + service_gpus

    @property
    def text(self) -> str:
        """In words."""
        scoring_text = "".join(f", {pool.gpus} for {' and '.join(pool.roles)}" for pool in self.scoring_pools)
        scoring_text += "".join(f", {pool.gpus} for the {pool.role}" for pool in self.service_pools if pool.gpus)
        if self.is_colocated:
            return f"colocated on {self.train_gpus} GPUs{scoring_text}"
        if self.is_hybrid:
            return f"{self.train_gpus} GPUs generate and then train, {self.engine_gpus} only generate{scoring_text}"
        steps_text = "step" if self.staleness == 1 else "steps"
        ahead = f"at most {self.staleness:g} {steps_text} off-policy" if self.staleness else "on-policy"
        partial_text = ", partial rollouts" if self.is_partial else ""
        return f"{self.train_gpus} GPUs train, {self.rollout_gpus} generate, {ahead}{partial_text}{scoring_text}"

    def scores_apart(self, role: str) -> bool:
        """Whether a role is on another pool than the actor."""
        return any(role in pool.roles for pool in self.scoring_pools)


@dataclasses.dataclass(frozen=True)
class Trainer:
    """The training side."""

    plan: Plan  # its sequence and batch are those of a full micro-batch
    update_tokens: int  # most tokens of a micro-batch of one data-parallel rank, over its context-parallel ranks
    logprob_tokens: int  # likewise, of log-probabilities
    recomputes_old: bool = True  # log-probabilities of the policy are computed again before the update
    has_reference: bool = True  # so are those of a frozen reference, on the training GPUs
    has_critic: bool = False  # of the actor's size and plan: values before an update, and updates of its own
    has_reward_model: bool = False  # of the actor's size and plan, frozen
    offloads: frozenset[Offloads] = frozenset()  # what is in host memory during other phases
    update_sequences: int | None = None  # of each micro-batch, whatever their lengths; None: as its tokens hold
    logprob_sequences: int | None = None  # likewise
    pads: bool = False  # each micro-batch to its full number of tokens
    pads_to_longest: bool = False  # each sequence of a micro-batch to the longest of its batch
    balances: bool = True  # ranks' shares of a batch have balanced sums
    trains_adapters: bool = False  # weights are frozen
    logits: LogitsCode = "composed"  # whose code computes log-probabilities


@dataclasses.dataclass(frozen=True)
class RlJob:
    """All of a job."""

    model: str
    cluster: Cluster  # with the GPUs of all pools
    batch: SampleBatch
    placement: Placement
    trainer: Trainer
    engine: PricedEngine
    algorithm: Algorithm = "grpo"
    reward: AnswerTimes = _AT_ONCE  # seconds of the reward of a response
    reward_workers: int = 64  # rewards computed at once
    assignment: Assignment = "balanced"
    sleep_level: int = 2  # of a colocated engine while its GPUs train
    overlaps_sync: bool = False  # engines generate during a transfer of weights
    steps: int = 3
    seed: int = 0

    @property
    def replicas(self) -> int:
        """Engines of the rollout pool."""
        return self.placement.rollout_gpus // self.engine.plan.gpus

    @property
    def data_ranks(self) -> int:
        """Data-parallel ranks of the training pool."""
        return self.trainer.plan.data(self.placement.train_gpus)


def warm_steps(placement: Placement) -> int:
    """Steps before both pools are as full as they stay: what was admitted at first is trained on, and once more."""
    return 2 * math.ceil(placement.staleness)


def pool_of(cluster: Cluster, gpus: int, pool_name: str) -> Cluster:
    """The part of a cluster that a pool of GPUs is: whole nodes, a part of one, or as many of each of several.

    Raises:
        InputError: the GPUs fill no number of nodes, and no nodes have equal numbers of them.
    """
    per_node = min(cluster.gpus_per_node, gpus)
    least = -(-gpus // per_node)
    nodes = next((nodes for nodes in range(least, cluster.nodes + 1) if gpus % nodes == 0), None)
    if nodes is not None:
        return msgspec.structs.replace(cluster, nodes=nodes, gpus_per_node=gpus // nodes)
    if gpus % per_node:
        below = gpus // per_node * per_node
        raise InputError(
            f"the {pool_name} pool of {gpus} GPUs fills no whole nodes of {per_node}; use {below} or {below + per_node}"
        )
    return msgspec.structs.replace(cluster, nodes=gpus // per_node, gpus_per_node=per_node)


def check(job: RlJob) -> None:
    """Check that batches divide, and that samples fit a micro-batch and the model.

    Raises:
        InputError: one does not, with its numbers.
    """
    batch, trainer, ranks = job.batch, job.trainer, job.data_ranks
    if batch.prompts % batch.mini_batches:
        raise InputError(
            f"{batch.prompts} prompts do not divide into {batch.mini_batches} mini-batches "
            f"({batch.prompts} % {batch.mini_batches} = {batch.prompts % batch.mini_batches}); use a divisor"
        )
    mini_batch = batch.responses // batch.mini_batches
    if mini_batch % ranks:
        raise InputError(
            f"a mini-batch of {mini_batch:,} responses does not divide over {ranks} data-parallel ranks "
            f"({mini_batch} % {ranks} = {mini_batch % ranks}); change --prompts, --samples, --mini-batch or a degree"
        )
    replica_gpus, pool = job.engine.plan.gpus, job.placement.rollout_gpus
    if pool % replica_gpus:
        raise InputError(
            f"engines of {replica_gpus} GPUs do not fill the rollout pool of {pool} GPUs; use a --rollout-tp that "
            f"divides {pool}"
        )
    if job.placement.is_hybrid and job.placement.engine_gpus % replica_gpus:
        raise InputError(
            f"engines of {replica_gpus} GPUs do not fill the {job.placement.engine_gpus} GPUs that only generate; use "
            f"a --rollout-tp that divides {job.placement.engine_gpus}"
        )
    for scoring_pool in job.placement.scoring_pools:
        scoring_ranks = trainer.plan.data(scoring_pool.gpus)
        if batch.responses % scoring_ranks:
            raise InputError(
                f"a batch of {batch.responses:,} responses does not divide over {scoring_ranks} data-parallel ranks of "
                f"the pool {scoring_pool.name!r} ({batch.responses} % {scoring_ranks} = "
                f"{batch.responses % scoring_ranks}); give it other gpus"
            )
    longest_tokens, room = batch.longest, min(trainer.update_tokens, trainer.logprob_tokens)
    if longest_tokens > room:
        raise InputError(
            f"a prompt with its response has up to {longest_tokens:,} tokens, more than the {room:,} of a micro-batch; "
            f"use --micro-tokens {math.ceil(longest_tokens / trainer.plan.context)} or more for each of "
            f"{trainer.plan.context} context-parallel ranks"
        )
    limit = job.engine.limits.max_model_len
    if longest_tokens > limit:
        raise InputError(
            f"a prompt with its response has up to {longest_tokens:,} tokens, and an engine for {job.model} takes "
            f"{limit:,}; shorten --response with max={limit - longest(batch.prompt)}"
        )
