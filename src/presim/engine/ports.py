"""Which simulated ranks share a network port, and how many ranks each of them counts for."""

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
    """The columns of `state.Program` from ``port`` to ``voices``.

    A simulated rank counts at a port as itself and the ranks there that it stands for: they do as it does, at the same
    time. Ranks there that nobody stands for are taken to do as the simulated ones at that port, in equal parts. Only
    ports of simulated ranks are kept: nothing is known of how long work takes at others.

    Args:
        ports: by rank of the world, the port that its GPU shares; none: every GPU has ports of its own.
        captured: the simulated ranks, in the order of the program.
        representatives: who stands for whom; nobody unless given.
    """
    if not len(ports):
        return _columns(np.full(len(captured), -1, np.int64), np.zeros((len(captured), 0), np.int64))
    of_world = np.array(ports, np.int64)
    ranks = np.array(captured, np.int64)
    kept, port = np.unique(of_world[ranks], return_inverse=True)
    port = port.astype(np.int64).reshape(-1)
    place = np.full(int(of_world.max()) + 1, -1, np.int64)
    place[kept] = np.arange(len(kept))
    voices = (representatives or Representatives(captured)).of(np.arange(len(of_world)))
    number = np.full(len(of_world), -1, np.int64)
    number[ranks] = np.arange(len(ranks))
    at = place[of_world]
    counts = np.zeros((len(ranks), len(kept)), np.int64)
    is_spoken_for = (at >= 0) & (voices >= 0)
    np.add.at(counts, (number[voices[is_spoken_for]], at[is_spoken_for]), state.SCALE)
    unknown = np.bincount(at[(at >= 0) & (voices < 0)], minlength=len(kept))
    counts[np.arange(len(ranks)), port] += (unknown * state.SCALE // np.bincount(port, minlength=len(kept)))[port]
    return _columns(port, counts)


def _columns(port: Ints, counts: Ints) -> dict[str, Ints]:
    """``port``: of each rank; ``counts``: [rank, port]."""
    rank, at = np.nonzero(counts)
    first, following = np.full(counts.shape[1], -1, np.int64), np.full(len(port), -1, np.int64)
    for number in range(len(port) - 1, -1, -1):
        if port[number] >= 0:
            following[number], first[port[number]] = first[port[number]], number
    return {
        "port": port,
        "port_first": first,
        "port_next": following,
        "voice_first": np.searchsorted(rank, np.arange(len(port) + 1)).astype(np.int64),
        "voice_port": at.astype(np.int64),
        "voices": counts[rank, at],
    }
