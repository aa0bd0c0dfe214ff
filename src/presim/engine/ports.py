"""Ranks that share a network port, and how many ranks each simulated rank counts for there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.engine import state
from presim.trace.representatives import Representatives

Ints = NDArray[np.int64]


def port_columns(
    ports: Sequence[int], captured: Sequence[int], representatives: Representatives | None = None
) -> dict[str, Ints]:
    """The columns of `state.Program` from ``port`` to ``weights``.

    At a port, a simulated rank counts for itself and for the ranks there that it represents. Those do the same work at
    the same time. Ranks without a representative are split evenly among the simulated ranks of their port. Only ports
    of simulated ranks are kept.

    Args:
        ports: by rank of the world, the port of its GPU; empty if GPUs do not share ports.
        captured: the simulated ranks, in the order of the program.
        representatives: which ranks represent others; by default none.
    """
    if not len(ports):
        return _columns(np.full(len(captured), -1, np.int64), np.zeros((len(captured), 0), np.int64))
    of_world = np.array(ports, np.int64)
    ranks = np.array(captured, np.int64)
    used_ports, port = np.unique(of_world[ranks], return_inverse=True)
    port = port.astype(np.int64).reshape(-1)
    port_numbers = np.full(int(of_world.max()) + 1, -1, np.int64)
    port_numbers[used_ports] = np.arange(len(used_ports))
    representative = (representatives or Representatives(captured)).of(np.arange(len(of_world)))
    simulated_numbers = np.full(len(of_world), -1, np.int64)
    simulated_numbers[ranks] = np.arange(len(ranks))
    port_by_rank = port_numbers[of_world]
    counts = np.zeros((len(ranks), len(used_ports)), np.int64)
    is_represented = (port_by_rank >= 0) & (representative >= 0)
    np.add.at(counts, (simulated_numbers[representative[is_represented]], port_by_rank[is_represented]), state.SCALE)
    unknown = np.bincount(port_by_rank[(port_by_rank >= 0) & (representative < 0)], minlength=len(used_ports))
    counts[np.arange(len(ranks)), port] += (unknown * state.SCALE // np.bincount(port, minlength=len(used_ports)))[port]
    return _columns(port, counts)


def _columns(port: Ints, counts: Ints) -> dict[str, Ints]:
    """``port``: port of each rank; ``counts``: [rank, port], in 1/SCALE."""
    rank, port_index = np.nonzero(counts)
    first, following = np.full(counts.shape[1], -1, np.int64), np.full(len(port), -1, np.int64)
    for number in range(len(port) - 1, -1, -1):
        if port[number] >= 0:
            following[number], first[port[number]] = first[port[number]], number
    return {
        "port": port,
        "port_first": first,
        "port_next": following,
        "weight_first": np.searchsorted(rank, np.arange(len(port) + 1)).astype(np.int64),
        "weight_port": port_index.astype(np.int64),
        "weights": counts[rank, port_index],
    }
