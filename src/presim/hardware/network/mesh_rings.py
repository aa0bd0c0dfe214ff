"""Rings through GPUs that links join directly, as in NCCL's search on a mesh."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from presim.hardware.network.topology import Ints, Topology

Matrix = tuple[tuple[int, ...], ...]
_MOST_GPUS = 9  # the number of orders to try grows as a factorial; meshes have eight GPUs
_MOST_STARTS = 64  # of searches among 2,520 orders of eight GPUs; each takes a millisecond
_WEAKEST = 0.25  # of the fastest link of a node: weaker ones carry no ring
_Way = tuple[int, ...]


def node_links(topology: Topology, members: Ints) -> Matrix:
    """Number of equal links between each pair of GPUs of a node, the least over all nodes.

    Args:
        topology: its links between GPUs count; those to switches do not.
        members: [node, position] ranks.
    """
    nodes, count = members.shape
    ranks = max(topology.gpus, int(members.max()) + 1)  # ranks without a GPU are refused where paths are searched
    position_of_gpu, node_of_gpu = np.full(ranks, -1, np.int64), np.full(ranks, -1, np.int64)
    position_of_gpu[members], node_of_gpu[members] = np.arange(count), np.arange(nodes)[:, None]
    is_direct = (topology.source < topology.gpus) & (topology.target < topology.gpus)
    source, target, Bps = (column[is_direct] for column in (topology.source, topology.target, topology.bandwidth_Bps))
    is_inside = (node_of_gpu[source] >= 0) & (node_of_gpu[source] == node_of_gpu[target])
    source, target, Bps = source[is_inside], target[is_inside], Bps[is_inside]
    rates = np.zeros((nodes, count, count))
    np.add.at(rates, (node_of_gpu[source], position_of_gpu[source], position_of_gpu[target]), Bps)
    least = rates.min(axis=0)
    least = np.minimum(least, least.T)
    usable = least[least >= _WEAKEST * max(float(least.max()), 1.0)]
    links = np.floor(least / usable.min() + 1e-6).astype(int) if len(usable) else np.zeros_like(least, int)
    return tuple(tuple(row) for row in links.tolist())


def count_rings(links: Matrix, gpus: tuple[int, ...]) -> int:
    """Number of rings that visit each of these GPUs once and do not share links. Both directions count.

    Two GPUs have one ring per link. The result is exact for up to five GPUs and a lower bound for more (greedy search
    from each start; of more than nine GPUs without a link for each pair, only rings in their order). 0: no ring.

    Args:
        links: number of links between each pair of GPUs.
        gpus: the GPUs to visit.
    """
    return len(ring_orders(links, gpus))


@functools.lru_cache(maxsize=256)
def ring_orders(links: Matrix, gpus: tuple[int, ...]) -> tuple[_Way, ...]:
    """The orders in which the rings of `count_rings` visit the GPUs, from the first; the second half is backwards."""
    if len(gpus) < 2 or max(gpus) >= len(links):
        return ()
    if len(gpus) == 2:
        return (gpus,) * links[gpus[0]][gpus[1]]
    free = {pair: links[pair[0]][pair[1]] for pair in itertools.combinations(sorted(gpus), 2)}
    if len(gpus) <= _MOST_GPUS:
        ways = [(gpus[0], *way) for way in itertools.permutations(gpus[1:]) if way[0] < way[-1]]
    else:
        ways = _cycles_of_all_pairs(gpus) if all(free.values()) else [gpus]
    open_ways = [way for way in ways if all(free[pair] for pair in _pairs(way))]
    most_rings = min(
        sum(links[gpu][other] for other in gpus) // 2 for gpu in gpus
    )  # a ring takes two links of each GPU
    best: tuple[_Way, ...] = ()
    for begin in range(min(len(open_ways), _MOST_STARTS)):
        best = max(best, _disjoint_ways((*open_ways[begin:], *open_ways[:begin]), dict(free)), key=len)
        if len(best) == most_rings:
            break
    return (*best, *((way[0], *way[:0:-1]) for way in best))


def _disjoint_ways(ways: tuple[_Way, ...], free: dict[tuple[int, int], int]) -> tuple[_Way, ...]:
    """Ways that share no link, chosen greedily in this order."""
    disjoint_ways = []
    for way in ways:
        while all(free[pair] > 0 for pair in _pairs(way)):
            disjoint_ways.append(way)
            for pair in _pairs(way):
                free[pair] -= 1
    return tuple(disjoint_ways)


def _cycles_of_all_pairs(gpus: tuple[int, ...]) -> list[_Way]:
    """Walecki's cycles: as many as there are that share no pair (Alspach, The wonderful Walecki construction, 2008)."""
    circle, last_gpu = gpus[:-1], gpus[-1]
    steps = [(step + 1) // 2 * (1 if step % 2 else -1) for step in range(len(circle))]  # 0, 1, -1, 2, -2, …
    cycles = []
    for turn in range((len(gpus) - 1) // 2):
        cycle = (*(circle[(turn + step) % len(circle)] for step in steps), last_gpu)
        start = cycle.index(gpus[0])
        cycles.append((*cycle[start:], *cycle[:start]))
    return cycles


@functools.cache
def _pairs(way: _Way) -> tuple[tuple[int, int], ...]:
    """Neighbours on the ring, the lower GPU first."""
    return tuple((min(pair), max(pair)) for pair in zip(way, (*way[1:], way[0]), strict=True))
