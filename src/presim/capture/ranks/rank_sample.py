"""Choose which ranks of a large job to run and compare, the most informative first.

A job lies on a grid with one axis per dimension of its process groups. Ranks tend to differ at the end of an axis
(uneven shards), at its beginning (the first rank logs or saves), or at a place that only the script knows. The ranks of
a node are an axis, too: a script may treat one of a node's GPUs differently.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from presim.capture.ranks.rank_grid import Axis, grid

_CORNERS = 4  # axes whose corners are sampled: at most 16 ranks


def first_sample(world_size: int) -> list[int]:
    """The rank to run beside rank 0 before the groups are known: the last one, at the other end of every axis."""
    return _distinct([world_size - 1])


def axis_sample(groups: Sequence[Sequence[int]], world_size: int) -> list[int]:
    """The second, a middle and the last rank along each axis and each group of rank 0.

    All seconds come before all middle ones, so that the first few lie on different axes.
    """
    lines: list[Sequence[int]] = [range(0, axis.stride * axis.size, axis.stride) for axis in grid(groups, world_size)]
    lines += [group for group in groups if len(group) > 1 and group[0] == 0]
    seconds, middles = [line[1] for line in lines], [line[len(line) // 2] for line in lines]
    return _distinct([*seconds, *middles, *(line[-1] for line in lines)])


def diagonal_sample(groups: Sequence[Sequence[int]], world_size: int, count: int) -> list[int]:
    """Ranks along the diagonal of the grid.

    ``count`` ranks, rank 0 included, have every index of all axes up to that size, and of longer axes as many.
    """
    axes = grid(groups, world_size)
    return _distinct([sum(axis.stride * _index(axis, number, count) for axis in axes) for number in range(count)])


def _index(axis: Axis, number: int, count: int) -> int:
    return number % axis.size if axis.size <= count else number * (axis.size - 1) // max(1, count - 1)


def is_line(groups: Sequence[Sequence[int]], world_size: int) -> bool:
    """Whether the process groups give the job no more than one axis."""
    return len(grid(groups, world_size)) < 2


def corner_sample(groups: Sequence[Sequence[int]], world_size: int) -> list[int]:
    """The corners of the grid."""
    axis_ends = [(0, axis.stride * (axis.size - 1)) for axis in grid(groups, world_size)[-_CORNERS:]]
    return _distinct([sum(corner) for corner in itertools.product(*axis_ends)])


def gap_sample(before: int, after: int, samples: int) -> list[int]:
    """Evenly spaced numbers between two, both excluded.

    >>> gap_sample(0, 8, 3)
    [2, 4, 6]
    """
    inside = after - before - 1
    count = min(inside, samples)
    return [before + (inside + 1) * position // (count + 1) for position in range(1, count + 1)]


def _distinct(ranks: Sequence[int]) -> list[int]:
    """Remove duplicates and rank 0, which always runs."""
    return [rank for rank in dict.fromkeys(ranks) if rank > 0]
