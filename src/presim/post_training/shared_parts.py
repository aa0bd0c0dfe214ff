"""Parts that placements of one job have in common: training prices, engines, rollouts and phases of training.

A placement joins a trainer on a pool with engines on a pool. Thousands of placements have few different parts.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from presim.composition.graph.graph_schema import OperatorGraph
from presim.post_training.logits import HeadSeconds, LogitsSeconds
from presim.post_training.rl_job import RlJob
from presim.post_training.rollout import Responses, Window, generate
from presim.post_training.training import TrainingPrices
from presim.post_training.weights import WeightSync
from presim.result import Memory
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.pricer import PricedWork
from presim.serving.steps.times import PricedEngine

Ints = NDArray[np.int64]
_MOST_WINDOWS = 256  # rollouts that are kept at once
Key: TypeAlias = tuple[Any, ...]


class TrainingPhase(NamedTuple):
    """A phase of scoring or training a batch."""

    name: str
    seconds: float
    controller_s: float  # of the controller before it
    waiting_s: float  # of an average rank, for ranks with more or longer sequences
    pool: str = ""  # one of the pools that score; empty: the actor's


TrainingPhases: TypeAlias = tuple[TrainingPhase, ...]


@dataclasses.dataclass
class SharedParts:
    """Parts by what they depend on, of one model, batch and kind of GPU."""

    prices: dict[Key, TrainingPrices] = dataclasses.field(default_factory=dict)
    memories: dict[Key, Memory] = dataclasses.field(default_factory=dict)  # of updates, by the keys of prices
    heads: dict[Key, tuple[LogitsSeconds, HeadSeconds]] = dataclasses.field(default_factory=dict)  # of one GPU
    engine_works: dict[ServingPlan, PricedWork] = dataclasses.field(default_factory=dict)  # of engines' steps
    engines: dict[Key, tuple[PricedEngine, tuple[str, ...]]] = dataclasses.field(default_factory=dict)
    windows: dict[Key, Window] = dataclasses.field(default_factory=dict)
    graphs: dict[str, OperatorGraph] = dataclasses.field(default_factory=dict)
    syncs: dict[Key, WeightSync] = dataclasses.field(default_factory=dict)
    phases: dict[Key, TrainingPhases] = dataclasses.field(default_factory=dict)
    training: TrainingPhases | None = None  # of every step; None: as its batch takes

    def window(self, responses: Responses, job: RlJob, seed: int) -> Window:
        """The rollout of these responses, simulated once for all placements with such engines.

        Raises:
            InputError: an engine takes no request of such a length.
        """
        columns = (responses.group, responses.prompt, responses.length, responses.generated)
        key = (job.engine.plan, job.replicas, job.assignment, job.batch.turns, seed, *map(digest, columns))
        if key not in self.windows:
            if len(self.windows) >= _MOST_WINDOWS:
                del self.windows[next(iter(self.windows))]
            self.windows[key] = generate(responses, job, seed)
        return self.windows[key]


def digest(numbers: Ints) -> bytes:
    """A short value that differs where the numbers do."""
    return hashlib.blake2b(np.ascontiguousarray(numbers).tobytes(), digest_size=16).digest()


def phases_key(job: RlJob, lengths: Ints) -> Key:
    """What the phases of training on a batch depend on."""
    trainer = dataclasses.replace(job.trainer, offloads=frozenset())
    gpus = (job.placement.train_gpus, job.placement.scoring_pools)
    return (trainer, *gpus, job.batch.mini_batches, job.batch.epochs, digest(lengths))
