"""Tokens that a rank sends and that the fullest rank receives, for a routing policy and a capacity.

Every layer's exchange ends when the rank with the most tokens has received them, so one simulated rank represents the
fullest rank of each layer. Its share is the mean over layers, because each layer has other popular experts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.trace import routing_policy
from presim.trace.group_sizes import rounded
from presim.trace.routing_policy import RoutingPolicy

_STEPS = 60  # of a bisection
Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Routing:
    """Where tokens go, and how many an expert takes."""

    policy: RoutingPolicy
    capacity: float = 0.0  # tokens an expert takes of each rank, relative to an even share; further ones drop; 0: all
    padded: bool = False  # every expert computes as many tokens as its capacity

    @property
    def is_even(self) -> bool:
        """Whether every expert gets an even share, and takes it."""
        return self.policy.kind == "balanced" and (self.capacity == 0 or (self.capacity >= 1 and not self.padded))


@dataclasses.dataclass(frozen=True)
class ExpertLoad:
    """Tokens relative to even routing without a capacity, a token counting once for each of its experts."""

    sent: float = 1.0  # by a rank
    received: float = 1.0  # by the fullest rank
    shares: tuple[float, ...] = ()  # of what is sent, by receiving rank, fullest first; empty: alike
    groups: tuple[float, ...] = ()  # of what the fullest rank receives, by expert, largest first; empty: alike


EVEN = ExpertLoad()


def parse(policy: str, capacity: float = 0.0, padded: bool = False) -> Routing:
    """A routing from a plan's fields.

    Raises:
        InputError: the policy has no known form, the capacity is negative, or there is none to pad to.
    """
    try:
        parsed_policy = routing_policy.parse(policy)
    except ValueError:
        raise InputError(f"routing = {policy}: expected {routing_policy.FORMS} (--routing)") from None
    if capacity < 0:
        raise InputError(f"expert_capacity = {capacity:g} is negative; use 0 to drop no tokens (--expert-capacity)")
    if padded and not capacity:
        raise InputError("pad_experts needs a capacity to pad to: set expert_capacity (--expert-capacity 1.25)")
    return Routing(parsed_policy, capacity, padded)


def load_of(routing: Routing, experts: int, experts_per_token: int, ranks: int, tokens: int, layers: int) -> ExpertLoad:
    """The load of ``ranks`` ranks with ``tokens`` tokens each.

    Each token chooses ``experts_per_token`` of ``experts`` experts.

    Raises:
        InputError: a policy has loads of another number of experts.
    """
    if routing.is_even:
        return EVEN
    random = np.random.default_rng(routing.policy.seed)
    by_layer = [_loads(routing, experts, experts_per_token, ranks, tokens, random) for _ in range(layers)]
    by_rank = np.stack([loads.reshape(ranks, -1).mean(axis=1) for loads in by_layer])
    fullest = np.stack(
        [loads.reshape(ranks, -1)[fullest_rank] for loads, fullest_rank in zip(by_layer, by_rank.argmax(axis=1))]
    )
    shares = -np.sort(-by_rank, axis=1).mean(axis=0)
    groups = -np.sort(-fullest, axis=1).mean(axis=0)
    return ExpertLoad(
        float(by_rank.mean()),
        float(shares[0]),
        () if np.allclose(shares, shares[0]) else tuple((shares / shares.sum()).tolist()),
        () if np.allclose(groups, groups[0]) else tuple((groups / groups.sum()).tolist()),
    )


def apportion(rows: int, shares: Sequence[float], count: int) -> list[int]:
    """Split rows in proportion to shares, rounded to integers; ``count``: number of equal parts if there are no shares.

    >>> apportion(10, (0.55, 0.45), 2)
    [6, 4]
    >>> apportion(10, (), 3)
    [3, 4, 3]
    """
    row_ends = np.round(np.cumsum(shares or [1 / count] * count) * rows).astype(int)
    return [int(rows) for rows in np.diff(row_ends, prepend=0)]


def group_sizes(rows: int, load: ExpertLoad, experts: int) -> list[int]:
    """Rows of the fullest rank's experts as `GroupedGemm.sizes` has them; empty if alike."""
    return list(rounded(apportion(rows, load.groups, experts))) if load.groups and rows else []


def _loads(
    routing: Routing, experts: int, experts_per_token: int, ranks: int, tokens: int, random: np.random.Generator
) -> Floats:
    """Tokens of each expert in one layer, relative to an even share."""
    even = tokens * experts_per_token / experts  # of one rank's tokens
    if routing.policy.kind == "balanced":
        by_sender = np.full((1, experts), even)
    else:
        weights = _weights(routing.policy, experts)
        if routing.policy.kind == "zipf":
            weights = random.permutation(weights)
        by_sender = random.binomial(tokens, inclusion(weights, experts_per_token), (ranks, experts)).astype(np.float64)
    limit = routing.capacity * even
    if routing.padded:
        by_sender = np.full((1, experts), limit)
    elif limit:
        by_sender = np.minimum(by_sender, limit)
    return np.asarray(by_sender.mean(axis=0) / even)


def _weights(policy: RoutingPolicy, experts: int) -> Floats:
    if policy.kind == "zipf":
        return np.arange(1, experts + 1, dtype=np.float64) ** -policy.skew
    if policy.kind == "loads":
        if len(policy.loads) != experts:
            raise InputError(
                f"routing has loads of {len(policy.loads)} experts, but the model has {experts}; give one number per "
                "expert"
            )
        return np.array(policy.loads)
    return np.ones(experts)


def inclusion(weights: Floats, experts_per_token: int) -> Floats:
    """Probability that a token chooses each expert, drawn by weight without replacement.

    ``1 - exp(-t * weight)`` with ``t`` such that they sum to ``experts_per_token`` (Rosen, Asymptotic theory for
    successive sampling, Annals of Mathematical Statistics 43, 1972).
    """
    has_weight = weights > 0
    if experts_per_token >= int(has_weight.sum()):
        return np.where(has_weight, 1.0, 0.0)
    scaled = weights / weights[has_weight].mean()
    low, high = 0.0, 1.0
    while (1 - np.exp(-high * scaled)).sum() < experts_per_token:
        high *= 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - np.exp(-middle * scaled)).sum() < experts_per_token else (low, middle)
    return np.asarray(1 - np.exp(-high * scaled))


def scaled(rows: int, factor: float) -> int:
    """Rows under a load, at least one."""
    return max(1, math.ceil(rows * factor - 1e-9))
