"""The sizes at which NCCL's choice changes, so that a larger message is priced no lower than a smaller one.

NCCL's estimates differ from presim's prices, so a price may fall where the choice changes. There the price before the
step is no higher than that behind it: a plan must not gain from more bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator

from presim.cost.collectives.library_choice import least_estimate
from presim.cost.collectives.nccl_choice import AlgorithmChoice, CollectiveQuestion, plateau_bytes
from presim.cost.collectives.nccl_environment import Tuning

_LARGEST = 50  # power of two: `presim.units.quantities.MESSAGE_BYTES`
_TREE_FACTORS = 6  # power of two from which on trees have another factor in each octave


@dataclasses.dataclass(frozen=True)
class ChoiceStep:
    """The first size that has a choice."""

    first_bytes: int
    choice: AlgorithmChoice


def steps_above(question: CollectiveQuestion, tuning: Tuning) -> Iterator[ChoiceStep]:
    """The steps to other choices above the size of the question."""
    sizeless = dataclasses.replace(question, size=0.0)
    return itertools.dropwhile(lambda step: step.first_bytes <= question.size, _steps(sizeless, tuning))


@functools.lru_cache(maxsize=1024)  # a communicator has one question for each kind
def _steps(question: CollectiveQuestion, tuning: Tuning) -> tuple[ChoiceStep, ...]:
    """All steps of a communicator, smallest first.

    Between two bounds all estimates are linear in the size, so the least of them does not return to an earlier choice.
    """
    bounds = {1, plateau_bytes(question, tuning), *(1 << power for power in range(_TREE_FACTORS, _LARGEST + 1))}
    steps: list[ChoiceStep] = []
    before: ChoiceStep | None = None
    for first_bytes, next_bytes in itertools.pairwise(sorted(bounds)):
        step, last = _step(question, tuning, first_bytes), _step(question, tuning, next_bytes - 1)
        if step is None or last is None:
            return ()
        if before is not None and not _is_alike(before, step):
            steps.append(step)
        while not _is_alike(step, last):
            step = _next(question, tuning, step, last)
            steps.append(step)
        before = last
    return tuple(steps)


def _next(question: CollectiveQuestion, tuning: Tuning, step: ChoiceStep, later: ChoiceStep) -> ChoiceStep:
    """The first size after ``step`` with another choice; ``later`` has one."""
    size = step.first_bytes
    while later.first_bytes - size > 1:
        middle = _step(question, tuning, (size + later.first_bytes) // 2)
        if middle is None or _is_alike(middle, step):
            size = (size + later.first_bytes) // 2
        else:
            later = middle
    return later


def _step(question: CollectiveQuestion, tuning: Tuning, size: int) -> ChoiceStep | None:
    choice = least_estimate(dataclasses.replace(question, size=float(size)), tuning)
    return None if choice is None else ChoiceStep(size, choice)


def _is_alike(step: ChoiceStep, other: ChoiceStep) -> bool:
    return (step.choice.algorithm, step.choice.protocol) == (other.choice.algorithm, other.choice.protocol)
