"""The token budget of a training run and what is known of its cluster."""

from __future__ import annotations

import dataclasses
import math

from presim.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProjectionRequest:
    """The token budget and the cluster's reliability; None: a default that the result names."""

    tokens: float
    price_per_gpu_hour: float | None = None
    price_per_kwh: float | None = None
    failures: str = "llama3"  # name of the report with the failure rate
    mtbf_hours: float | None = None  # of the whole cluster; overrides the report
    checkpoint_s: float | None = None  # training pauses for it; None: state size over storage bandwidth
    interval_s: float | None = None  # work between checkpoints; None: the best interval
    restart_s: float | None = None
    repair_s: float | None = None
    spares: int | None = None  # nodes; None: always enough
    elastic: bool = False  # continue without the replicas that miss a node
    jitter: float = 0.0  # relative standard deviation of a rank's step time, independent between ranks and steps
    runs: int = 200
    seed: int = 0


def check(request: ProjectionRequest) -> None:
    """Check the ranges of the request's numbers.

    Raises:
        InputError: a number is out of range.
    """
    for name in ("tokens", "price_per_gpu_hour", "price_per_kwh", "mtbf_hours", "checkpoint_s", "interval_s"):
        value = getattr(request, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{name.replace('_', ' ')} = {value:g} must be a positive number; correct it")
    for name in ("restart_s", "repair_s", "spares", "jitter"):
        value = getattr(request, name)
        if value is not None and not 0 <= value < math.inf:
            raise InputError(f"{name.replace('_', ' ')} = {value:g} must not be negative; correct it")
    if request.runs < 1:
        raise InputError(f"runs = {request.runs} must be at least 1; correct it")
