"""Group sizes of a grouped product, reduced to as few distinct values as its price needs.

>>> rounded([512, 500, 530])
()
>>> rounded([3000, 0, 100, 101])
(2896, 99, 99)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

_EQUAL_RATIO = 1.1  # largest over smallest group up to which groups count as equal
_GRID = 8  # sizes per octave: the error is at most 4.5 %


def sizes_of(group_ends: Sequence[int], total_rows: int) -> tuple[int, ...] | None:
    """Rows of each group, from the end of each; None if these are not group ends within ``total_rows``."""
    sizes = [end - start for start, end in itertools.pairwise((0, *group_ends))]
    return tuple(sizes) if sizes and min(sizes) >= 0 and 0 < sum(sizes) <= total_rows else None


def rounded(sizes: Sequence[int]) -> tuple[int, ...]:
    """Non-empty groups, largest first, rounded to a grid; empty if all groups have a similar size."""
    if max(sizes) <= _EQUAL_RATIO * min(sizes):
        return ()
    return tuple(sorted((_on_grid(size) for size in sizes if size), reverse=True))


def _on_grid(size: int) -> int:
    return max(1, round(2 ** (round(math.log2(size) * _GRID) / _GRID)))
