"""Ways to split a prompt over ranks, and what each way gives every rank to compute.

A rank's share is a list of attention calls: queries of one chunk over all keys up to its end (causal). With zigzag,
``2 x degree`` chunks are dealt so that a rank has one from the front and one from the back, which balances the work of
causal attention (Llama 3, arXiv 2407.21783, section 3.3.2). Contiguous chunks need fewer calls, but the last rank works
most.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Literal, TypeAlias

Layout: TypeAlias = Literal["whole", "zigzag", "contiguous"]
Call: TypeAlias = tuple[int, int]  # queries, keys


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to split a prompt: over which ranks, and how."""

    degree: int
    first: int  # the first of ``degree`` neighbouring ranks
    layout: Layout

    @property
    def ranks(self) -> range:
        """The ranks that take part."""
        return range(self.first, self.first + self.degree)


def degrees(ranks: int) -> list[int]:
    """The degrees that groups of neighbouring ranks can have: the divisors of their number."""
    return [degree for degree in range(1, ranks + 1) if ranks % degree == 0]


def ways(length: int, ranks: int) -> list[Way]:
    """All ways to split a prompt of ``length`` tokens; every chunk has at least one token."""
    splits = []
    for degree in degrees(ranks):
        for first in range(0, ranks, degree):
            if degree == 1:
                splits.append(Way(1, first, "whole"))
            if 1 < degree <= length:
                splits.append(Way(degree, first, "contiguous"))
            if 1 < degree <= length // 2:
                splits.append(Way(degree, first, "zigzag"))
    return splits


def calls(length: int, way: Way) -> list[list[Call]]:
    """The attention calls of each rank of the group, in their order; their queries add up to ``length``."""
    if way.layout == "zigzag":
        chunks = _chunks(length, 2 * way.degree)
        return [[chunks[rank], chunks[-1 - rank]] for rank in range(way.degree)]
    return [[chunk] for chunk in _chunks(length, way.degree)]


def _chunks(length: int, count: int) -> list[Call]:
    bounds = [length * index // count for index in range(count + 1)]
    return [(end - start, end) for start, end in itertools.pairwise(bounds)]
