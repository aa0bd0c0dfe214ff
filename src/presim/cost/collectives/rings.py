"""Number of rings through directly connected GPUs, as in NCCL's search on a mesh."""

from __future__ import annotations

import functools
import itertools

Matrix = tuple[tuple[int, ...], ...]
_MOST_GPUS = 9  # the number of orders to try grows as a factorial; meshes have eight GPUs


@functools.lru_cache(maxsize=256)
def count_rings(links: Matrix, gpus: tuple[int, ...]) -> int:
    """Number of rings that visit each of these GPUs once and do not share links. Both directions count.

    Two GPUs have one ring per link. The result is exact for up to five GPUs and a lower bound for more (greedy search
    from each start). 0: there is no ring.

    Args:
        links: number of links between each pair of GPUs.
        gpus: the GPUs to visit.
    """
    if len(gpus) < 2 or max(gpus) >= len(links) or len(gpus) > _MOST_GPUS:
        return 0
    if len(gpus) == 2:
        return links[gpus[0]][gpus[1]]
    ways = [(gpus[0], *way) for way in itertools.permutations(gpus[1:]) if way[0] < way[-1]]
    edges = [tuple((min(pair), max(pair)) for pair in zip(way, (*way[1:], way[0]), strict=True)) for way in ways]
    free = {pair: links[pair[0]][pair[1]] for pair in itertools.combinations(sorted(gpus), 2)}
    open_ways = [way for way in edges if all(free[pair] for pair in way)]
    return 2 * max(_count_disjoint_ways(open_ways, dict(free), begin) for begin in range(max(len(open_ways), 1)))


def _count_disjoint_ways(ways: list[tuple[tuple[int, int], ...]], free: dict[tuple[int, int], int], begin: int) -> int:
    """Number of disjoint ways, chosen greedily in order from the one at ``begin``."""
    disjoint_ways = 0
    for way in (*ways[begin:], *ways[:begin]):
        while all(free[pair] > 0 for pair in way):
            disjoint_ways += 1
            for pair in way:
                free[pair] -= 1
    return disjoint_ways
