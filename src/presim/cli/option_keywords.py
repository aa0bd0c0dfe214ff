"""Keywords of `presim.run`, `simulate`, `replan`, `search` and `calibrate`: the fields of their options, with types."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from presim.studies.calibrate.parts import Part


class EvaluationKeywords(TypedDict, total=False):
    """Fields of `presim.evaluation.options.EvaluationOptions`, which documents each and its default."""

    gpu: str | None
    node: str | None
    fabric: str | None
    nodes: int | None
    gpus_per_node: int | None
    world_size: int | None
    cluster: str | None
    rank: int | None
    contention: bool
    overlap_model: str
    host_factor: float | None
    host_time: bool
    prices: Sequence[str | os.PathLike[str]]
    bandwidth: Sequence[str]
    stragglers: Sequence[str]
    scale_op: Sequence[str]
    estimator: Sequence[str]


class SimulateKeywords(EvaluationKeywords, total=False):
    """Fields of `presim.evaluation.options.SimulateOptions`, likewise."""

    scale: str | None
    wider: str | os.PathLike[str] | None
    fail: Sequence[str]
    ranks_simulated: str
    jitter: Sequence[str]
    jitter_draws: int
    budget: str
    events: str | os.PathLike[str] | None
    seed: int


class ReplanKeywords(EvaluationKeywords, total=False):
    """Fields of `presim.evaluation.options.ReplanOptions`, likewise."""

    layers: int | None
    larger: str | os.PathLike[str] | None
    wider: str | os.PathLike[str] | None
    pipeline: int | None
    micro_batches: int | None
    data_parallel: int | None
    save: str | os.PathLike[str] | None


class RunKeywords(EvaluationKeywords, total=False):
    """Fields of `presim.evaluation.options.RunOptions`, likewise."""

    module: bool
    ranks: str
    checks: int | None
    check_time: float
    steps: int | None
    limit: float
    values: Sequence[str]
    draws: int
    sanitize: bool
    live: bool
    save: str | os.PathLike[str] | None
    wider: int | None
    profile_missing: bool


class SearchKeywords(TypedDict, total=False):
    """Fields of `presim.planner.search_options.SearchOptions`, which documents each and its default."""

    objective: Sequence[str]
    spare_gib: float
    max_gpus: int | None
    max_days: float | None
    tokens: float | None
    price_per_gpu_hour: float | Mapping[str, float] | None
    sampler: str
    trials: int | None
    seed: int
    jobs: int | None
    ray: str | None
    budget: float | None
    study: str | None
    prune: Sequence[str]
    dtype: str
    space: str | None
    confirm: int
    framework: str
    framework_plans: int | None
    precision: str | None
    framework_args: str | None


class CalibrateKeywords(TypedDict, total=False):
    """Keywords of `presim.studies.calibrate.correct_cluster.calibrate_job`, likewise."""

    trace: str | os.PathLike[str] | None
    change: Part | None
    step: int | None
    missing: Literal["refuse", "same"]
