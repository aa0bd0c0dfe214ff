"""Which captured stage of a pipeline answers for each stage of a longer one.

The first and the last stages may hold layers of their own. Those between do the same work, and two of them are
captured: the second confirms what the first says.
"""

from __future__ import annotations

from typing import TypeAlias

Ends: TypeAlias = tuple[int, int]  # the first and the last stages that stand for themselves alone
ONE_AT_EACH_END: Ends = (1, 1)
_BETWEEN = 2


def captured_stages(ends: Ends) -> int:
    """The number of stages to capture.

    >>> captured_stages((1, 1))
    4
    """
    return sum(ends) + _BETWEEN


def source_stages(ends: Ends, new_stages: int, stages: int) -> list[int]:
    """For each of new stages, which of ``stages`` it is like, where the new ones between take the numbers in turn.

    >>> source_stages((1, 1), 4, 16)
    [0, 1, 2, 15]
    >>> source_stages((1, 1), 8, 4)
    [0, 1, 2, 1, 2, 1, 2, 3]
    """
    head, tail = ends
    between = (head + index % _BETWEEN for index in range(new_stages - head - tail))
    return [*range(head), *between, *range(stages - tail, stages)]
