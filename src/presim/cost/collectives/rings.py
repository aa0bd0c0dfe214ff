"""How many rings fit through GPUs that links of their own join: what NCCL's search does on a mesh."""

from __future__ import annotations

import functools
import itertools

Matrix = tuple[tuple[int, ...], ...]
_MOST_GPUS = 9  # beyond, there are too many ways to look at; meshes have eight


@functools.lru_cache(maxsize=256)
def count_rings(links: Matrix, gpus: tuple[int, ...]) -> int:
    """Rings, each direction of a way around counted, that pass every one of these GPUs over links of their own.

    ``links``: how many links join each pair. Two GPUs have a ring for each link between them; the answer is the most
    for groups of up to five GPUs and at least what going by the first way found gives beyond. 0: there is none.
    """
    if len(gpus) < 2 or max(gpus) >= len(links) or len(gpus) > _MOST_GPUS:
        return 0
    if len(gpus) == 2:
        return links[gpus[0]][gpus[1]]
    ways = [(gpus[0], *way) for way in itertools.permutations(gpus[1:]) if way[0] < way[-1]]
    edges = [tuple((min(pair), max(pair)) for pair in zip(way, (*way[1:], way[0]), strict=True)) for way in ways]
    free = {pair: links[pair[0]][pair[1]] for pair in itertools.combinations(sorted(gpus), 2)}
    open_ways = [way for way in edges if all(free[pair] for pair in way)]
    return 2 * max(_packed(open_ways, dict(free), begin) for begin in range(max(len(open_ways), 1)))


def _packed(ways: list[tuple[tuple[int, int], ...]], free: dict[tuple[int, int], int], begin: int) -> int:
    """Ways that fit beside each other, taken as they come from the one at ``begin`` on."""
    found = 0
    for way in (*ways[begin:], *ways[:begin]):
        while all(free[pair] > 0 for pair in way):
            found += 1
            for pair in way:
                free[pair] -= 1
    return found
