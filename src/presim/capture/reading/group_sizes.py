"""Sizes of the groups of a grouped product, as few distinct ones as its price needs.

>>> rounded([512, 500, 530])
()
>>> rounded([3000, 0, 100, 101])
(2896, 99, 99)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

_ALIKE = 1.1  # the largest over the smallest of groups that count as even
_GRID = 8  # sizes in an octave: none is off by more than 4.5 %


def sizes_of(ends: Sequence[int], whole: int) -> tuple[int, ...] | None:
    """How many rows each group has, from where each ends; None where these are no ends of groups among ``whole``."""
    sizes = [end - start for start, end in itertools.pairwise((0, *ends))]
    return tuple(sizes) if sizes and min(sizes) >= 0 and 0 < sum(sizes) <= whole else None


def rounded(sizes: Sequence[int]) -> tuple[int, ...]:
    """Those that are not empty, largest first, on a grid; none where all groups are about as large."""
    if max(sizes) <= _ALIKE * min(sizes):
        return ()
    return tuple(sorted((_on_grid(size) for size in sizes if size), reverse=True))


def _on_grid(size: int) -> int:
    return max(1, round(2 ** (round(math.log2(size) * _GRID) / _GRID)))
