"""Choose which ranks of a large job to run and compare, the most informative first.

A job lies on a grid with one axis per dimension of its process groups. Ranks tend to differ at the end of an axis
(uneven shards), at its beginning (the first rank logs or saves), or at a place that only the script knows.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from presim.capture.ranks.layout import Axis, grid

LOCAL_INDEX = (
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
)  # variables for the GPU within a node
_CORNERS = 4  # axes whose corners are sampled: at most 16 ranks
_SEED = 0


def first_sample(world_size: int) -> list[int]:
    """The rank to run beside rank 0 before the groups are known: the last one, where uneven shards end."""
    return _distinct([world_size - 1])


def axis_sample(groups: Sequence[Sequence[int]], world_size: int) -> list[int]:
    """The second, the last and a middle rank along each axis and each group of rank 0."""
    found: list[int] = []
    for axis in grid(groups, world_size):
        found += [axis.stride * at for at in (1, axis.size - 1, axis.size // 2)]
    for group in groups:
        if len(group) > 1 and group[0] == 0:
            found += [group[1], group[-1], group[len(group) // 2]]
    return _distinct(found)


def is_line(groups: Sequence[Sequence[int]], world_size: int) -> bool:
    """Whether the process groups give the job no more than one axis."""
    return len(grid(groups, world_size)) < 2


def wide_sample(groups: Sequence[Sequence[int]], world_size: int, randoms: int = 4) -> list[int]:
    """The corners of the grid, and some ranks chosen at random with a fixed seed."""
    corners = _corners(grid(groups, world_size)[-_CORNERS:])
    chosen = random.Random(_SEED).sample(range(world_size), min(randoms, world_size))
    return _distinct([*corners, *chosen])


def depends_on_rank(reads: Sequence[str]) -> bool:
    """Whether code outside PyTorch reads the rank for more than choosing its GPU within the node.

    ``reads``: places as in `presim.trace.coverage.Coverage.rank_reads`.
    """
    return any(place.rpartition(" (")[2].rstrip(")") not in LOCAL_INDEX for place in reads)


def _corners(axes: Sequence[Axis]) -> list[int]:
    ends = [(0, axis.stride * (axis.size - 1)) for axis in axes]
    return [sum(place) for place in itertools.product(*ends)]


def gap_sample(before: int, after: int, samples: int) -> list[int]:
    """Evenly spaced numbers between two, both excluded.

    >>> gap_sample(0, 8, 3)
    [2, 4, 6]
    """
    inside = after - before - 1
    count = min(inside, samples)
    return [before + (inside + 1) * place // (count + 1) for place in range(1, count + 1)]


def _distinct(ranks: Sequence[int]) -> list[int]:
    """Remove duplicates and rank 0, which always runs."""
    return [rank for rank in dict.fromkeys(ranks) if rank > 0]
