"""What work asks of a GPU while it runs, and how much two pieces of work that overlap slow each other.

A collective holds streaming multiprocessors (SMs), one for each of its channels, so a kernel bound by arithmetic
beside it has fewer. Bandwidth of memory and wires is shared: where two ask for more than there is, both go slower in
proportion. Small kernels that are bound by latency neither slow nor are slowed.

Held against public data (docs/decisions/contention.md) this is right on average and wide for a single kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

_MOST = 3.0  # largest slowdown by one neighbour


@dataclasses.dataclass(frozen=True)
class Demand:
    """Resource demand of work that runs alone, as shares (0 to 1) of its GPU and of shared network ports."""

    channels: float = 0.0  # SMs that others cannot use
    arithmetic: float = 0.0  # share of its time that is limited by its SMs
    memory: float = 0.0  # bandwidth of the GPU's memory
    link_out: float = 0.0  # bandwidth towards other GPUs of the node, one direction each
    link_in: float = 0.0
    port_out: float = 0.0  # bandwidth into the network, of what the GPU's group can use
    port_in: float = 0.0
    shared_out: float = 0.0  # one rank's part of a port that several GPUs share; 0: the GPU has ports of its own
    shared_in: float = 0.0


NOTHING = Demand()


def added(work: Demand, beside: Demand) -> float:
    """What `beside`, on the same GPU, adds to each second of `work` while both run: 0 where they do not meet.

    Ports that GPUs share are `presim.engine.slowdown`'s to add up.
    """
    held = min(beside.channels, 0.75)
    fewer = work.arithmetic * held / (1 - held)
    shared = max(
        _excess(work.memory, beside.memory),
        _excess(work.link_out, beside.link_out),
        _excess(work.link_in, beside.link_in),
        _excess(work.port_out, beside.port_out),
        _excess(work.port_in, beside.port_in),
    )
    return min(fewer + shared, _MOST)


def table(demands: Sequence[Demand]) -> list[list[float]]:
    """`added` for every pair."""
    return [[added(work, beside) for beside in demands] for work in demands]


def _excess(mine: float, other: float) -> float:
    """Combined demand of two users beyond the capacity."""
    return max(0.0, mine + other - 1) if mine and other else 0.0
