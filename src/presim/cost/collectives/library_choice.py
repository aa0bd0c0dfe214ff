"""What the library of a group's GPUs chooses: NCCL's rules on NVIDIA's, RCCL's on AMD's."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from presim.cost.collectives import nccl_choice, rccl_choice
from presim.cost.collectives.nccl_choice import AlgorithmChoice, CollectiveQuestion
from presim.cost.collectives.nccl_environment import Tuning


@functools.lru_cache(maxsize=4096)  # one call is asked for its price, its resources and its bytes between nodes
def choose(question: CollectiveQuestion, tuning: Tuning) -> AlgorithmChoice | None:
    """The choice among what ``tuning`` allows; None: the library has no rule for this kind, or nothing is allowed."""
    return least_estimate(question, tuning)


def least_estimate(question: CollectiveQuestion, tuning: Tuning) -> AlgorithmChoice | None:
    """As `choose`, not remembered: for a search over sizes."""
    if rccl_choice.has_rules(question.links.generation):
        return rccl_choice.least_estimate(question, tuning)
    return nccl_choice.least_estimate(question, tuning)


def estimates(question: CollectiveQuestion, tuning: Tuning) -> Iterator[AlgorithmChoice]:
    """The library's estimates of every algorithm and protocol that it has for a collective, in its order."""
    if rccl_choice.has_rules(question.links.generation):
        return rccl_choice.estimates(question, tuning)
    return nccl_choice.estimates(question, tuning)
