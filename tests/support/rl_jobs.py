"""Small post-training jobs whose engines are simulated and whose training steps have invented prices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from presim.composition.plan import Plan
from presim.hardware.cluster_choice import choose_cluster
from presim.post_training.build import Built
from presim.post_training.curves import Curve
from presim.post_training.rl_job import Placement, RlJob, SampleBatch, Trainer
from presim.post_training.rl_phases import PhasePrices
from presim.post_training.role_memory import PhaseMemory
from presim.post_training.training import TrainingPrices
from presim.post_training.weights import WeightSync
from presim.result import Memory
from presim.result.memory import MemoryTimeline
from presim.serving.defaults import with_defaults
from presim.serving.model_lookup import find
from presim.serving.steps.times import PricedEngine, build
from presim.serving.workloads.generate import Lengths

_GIB = 1 << 30


@functools.cache
def engine(sequences: int = 16) -> PricedEngine:
    """An engine of one GPU for a small model, with room for so many sequences."""
    model = find("qwen3-0.6b")
    cluster = choose_cluster(gpu="h100-sxm", world_size=1)
    return build(model, with_defaults({"max_num_seqs": sequences, "max_model_len": 4096}, model, cluster.gpu), cluster)


def job(
    *, prompts: int = 8, samples: int = 4, response: Lengths | None = None, staleness: float = 0.0,
    is_partial: bool = False, is_colocated: bool = False, mini_batches: int = 1, steps: int = 4, seed: int = 0,
    sequences: int = 16, spare_prompts: int = 0, cut_share: float = 0.0, placement: Placement | None = None,
    trainer: Trainer | None = None, **fields: Any,
) -> RlJob:  # fmt: skip
    """Two GPUs train and two generate, unless both sides share four or a placement says otherwise."""
    train, rollout = (4, 4) if is_colocated else (2, 2)
    placement = placement or Placement(train, rollout, is_colocated, staleness, is_partial)
    return RlJob(
        "qwen3-0.6b",
        choose_cluster(gpu="h100-sxm", world_size=placement.gpus),
        SampleBatch(
            prompts,
            samples,
            Lengths(64),
            response or Lengths(200, 0.6, longest=1000),
            mini_batches,
            spare_prompts=spare_prompts,
            cut_share=cut_share,
        ),
        placement,
        trainer or Trainer(Plan(sequence=4096), 4096, 4096),
        engine(sequences),
        steps=steps,
        seed=seed,
        **fields,
    )


def prices(token_s: float = 1e-5, *, sync_s: float = 0.25, **fields: Any) -> PhasePrices:
    """Training that takes so many seconds a token, a quarter of it forward."""
    grid = np.array([256.0, 4096.0])
    update, forward = (Curve(grid, grid * token_s * share, np.zeros(2)) for share in (0.75, 0.25))
    fill = Curve(grid, np.zeros(2), np.zeros(2))
    training = TrainingPrices(Plan(sequence=4096), 2, update, forward, fill, 0.05, 500.0, memory(), ())
    return PhasePrices(training, WeightSync(sync_s / 2, sync_s / 4, sync_s / 4, _GIB), **fields)


def memory() -> Memory:
    """Ten GiB of an update."""
    return Memory(
        True, "Fits.", "", 10 * _GIB, 10 * _GIB, 10 * _GIB, 10 * _GIB, 80 * _GIB, 70 * _GIB, [], [], [], None,
        MemoryTimeline([], [], []),
    )  # fmt: skip


def built(made: RlJob) -> Built:
    """The job with prices and memory of its phases."""
    phase = PhaseMemory("training", "update", {"parameters": 2 * _GIB}, 80 * _GIB)
    return Built(made, prices(), [phase], ("Context parallelism of 2 (--cp) was chosen: the smallest that fits.",))
