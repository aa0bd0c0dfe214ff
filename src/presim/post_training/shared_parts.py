"""Parts that placements of one job have in common: training prices, engines, rollouts and phases of training.

A placement joins a trainer on a pool with engines on a pool. Thousands of placements have few different parts.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from presim.composition.graph.graph_schema import OperatorGraph
from presim.post_training.rl_job import RlJob
from presim.post_training.rollout import Responses, Window, generate
from presim.post_training.training import TrainingPrices
from presim.post_training.weights import WeightSync
from presim.serving.steps.times import PricedEngine

Ints = NDArray[np.int64]
_MOST_WINDOWS = 256  # rollouts that are kept at once
Key: TypeAlias = tuple[Any, ...]
TrainingPhases: TypeAlias = tuple[tuple[str, float, float], ...]  # name, seconds, the controller's seconds before it


@dataclasses.dataclass
class SharedParts:
    """Parts by what they depend on, of one model, batch and kind of GPU."""

    prices: dict[Key, TrainingPrices] = dataclasses.field(default_factory=dict)
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
    return (trainer, job.placement.train_gpus, job.batch.mini_batches, job.batch.epochs, digest(lengths))
