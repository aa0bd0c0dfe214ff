"""The sizes at which NCCL's choice changes, so that a larger message is priced no lower than a smaller one.

NCCL's estimates differ from presim's prices, so a price may fall where the choice changes. There the price before the
step holds until a larger message takes as long: a plan must not gain from more bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator

from presim.cost.collectives.environment import Tuning
from presim.cost.collectives.nccl_choice import Choice, Question, least_estimate, plateau_bytes

_LARGEST = 50  # power of two: `presim.quantities.MESSAGE_BYTES`
_TREE_FACTORS = 6  # power of two from which on trees have another factor in each octave


@dataclasses.dataclass(frozen=True)
class Step:
    """The last size that has a choice."""

    last_bytes: int
    choice: Choice


def steps_below(question: Question, tuning: Tuning) -> Iterator[Step]:
    """The steps of sizes below that of the question."""
    sizeless = dataclasses.replace(question, size=0.0)
    return itertools.takewhile(lambda step: step.last_bytes < question.size, _steps(sizeless, tuning))


@functools.lru_cache(maxsize=1024)  # a communicator has one question for each kind
def _steps(question: Question, tuning: Tuning) -> tuple[Step, ...]:
    """All steps of a communicator, smallest first.

    Between two bounds all estimates are linear in the size, so the least of them does not return to an earlier choice.
    """
    bounds = {1, plateau_bytes(question, tuning), *(1 << power for power in range(_TREE_FACTORS, _LARGEST + 1))}
    steps: list[Step] = []
    before: Step | None = None
    for first, after_last in itertools.pairwise(sorted(bounds)):
        size, last = first, _step(question, tuning, after_last - 1)
        if before is not None and last is not None and not _is_alike(before, _step(question, tuning, first)):
            steps.append(before)
        while last is not None and not _is_alike(_step(question, tuning, size), last):
            end = _end(question, tuning, size, after_last - 1)
            steps.append(end)
            size = end.last_bytes + 1
        before = last
    return tuple(steps)


def _end(question: Question, tuning: Tuning, size: int, beyond: int) -> Step:
    """The last size from ``size`` on with its choice; ``beyond`` has another one."""
    low = _step(question, tuning, size)
    assert low is not None
    while beyond - low.last_bytes > 1:
        middle = _step(question, tuning, (low.last_bytes + beyond) // 2)
        assert middle is not None
        if _is_alike(middle, low):
            low = middle
        else:
            beyond = middle.last_bytes
    return low


def _step(question: Question, tuning: Tuning, size: int) -> Step | None:
    choice = least_estimate(dataclasses.replace(question, size=float(size)), tuning)
    return None if choice is None else Step(size, choice)


def _is_alike(step: Step | None, other: Step | None) -> bool:
    if step is None or other is None:
        return step is other
    return (step.choice.algorithm, step.choice.protocol) == (other.choice.algorithm, other.choice.protocol)
