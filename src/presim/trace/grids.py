"""Process groups as parts of a grid of ranks: finds the group of the same kind that another rank is in.

A mesh of TP, PP, CP, EP and DP numbers its ranks in mixed radix. The members of a group differ only in some digits, so
they lie at steps: ``(stride, size)`` pairs, the finest first. Its sister groups, one for every value of the remaining
digits, follow from these pairs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

Axes = tuple[tuple[int, int], ...]  # (stride, size) of each digit that the group varies, ascending


@functools.lru_cache(maxsize=512)
def axes_of(ranks: tuple[int, ...]) -> Axes | None:
    """The steps at which a group's members lie; None: they form no part of a grid.

    >>> axes_of((3, 11, 19)), axes_of((0, 1, 8, 9)), axes_of((0, 1, 3))
    (((8, 3),), ((1, 2), (8, 2)), None)
    """
    base = min(ranks, default=0)
    offsets = [rank - base for rank in sorted(ranks)]
    axes: list[tuple[int, int]] = []
    while len(offsets) > 1:
        stride = offsets[1]
        size = 1
        while size < len(offsets) and offsets[size] == size * stride:
            size += 1
        if len(offsets) % size or any(
            offsets[start + step] != offsets[start] + step * stride
            for start in range(0, len(offsets), size)
            for step in range(size)
        ):
            return None
        axes.append((stride, size))
        offsets = offsets[::size]
    is_grid = all(outer % (inner * size) == 0 for (inner, size), (outer, _) in itertools.pairwise(axes))
    return tuple(axes) if is_grid and all(base // stride % size == 0 for stride, size in axes) else None


def origin_of(rank: int, axes: Axes) -> int:
    """The lowest rank of the group of this kind that ``rank`` is in.

    >>> origin_of(13, ((1, 2), (8, 2)))
    4
    """
    return rank - sum(rank // stride % size * stride for stride, size in axes)


def members_of(origin: int, axes: Axes) -> tuple[int, ...]:
    """The ranks of the group that begins at ``origin``, ascending.

    >>> members_of(4, ((1, 2), (8, 2)))
    (4, 5, 12, 13)
    """
    members = [origin]
    for stride, size in reversed(axes):
        members = [member + step * stride for member in members for step in range(size)]
    return tuple(members)


def sisters(ranks: Sequence[int], world_size: int) -> list[tuple[int, ...]]:
    """All groups of the same kind in a world, this one among them; only this one where they form no grid.

    >>> sisters((0, 2), 4)
    [(0, 2), (1, 3)]
    """
    axes = axes_of(tuple(ranks))
    if axes is None:
        return [tuple(ranks)]
    origins = sorted({origin_of(rank, axes) for rank in range(world_size)})
    groups = [members_of(origin, axes) for origin in origins]
    return [members for members in groups if members[-1] < world_size]
