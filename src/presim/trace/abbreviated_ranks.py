"""Ranks of a group as PyTorch's profiler writes them: it shortens lists of more than 30 ranks."""

from __future__ import annotations

import itertools
import re

_RANK = re.compile(r"\b\d{1,9}\b")


def read_ranks(text: str, size: int) -> tuple[int, ...]:
    """The ranks in a list or its text; empty if it is shortened and ``size`` (0: not known) does not tell the rest.

    A shortened list has its first 29 ranks and the last one. If these have one distance, and ``size`` ranks of that
    distance end at the last one, they are all.

    >>> read_ranks("[0, 2, 4]", 3), read_ranks("[0, 8, 16, ..., 504]", 64)[-2:], read_ranks("[0, 1, 8, ..., 63]", 40)
    ((0, 2, 4), (496, 504), ())
    """
    numbers = tuple(map(int, _RANK.findall(text)))
    if "..." not in text:
        return numbers
    *head, last = numbers or (0,)
    steps = {after - before for before, after in itertools.pairwise(head)}
    if len(steps) != 1 or size <= len(head):
        return ()
    (step,) = steps
    ranks = range(head[0], head[0] + step * size, step) if step > 0 else range(0)
    return tuple(ranks) if len(ranks) == size and ranks[-1] == last else ()
