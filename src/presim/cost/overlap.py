"""Resource use of running work, and the slowdown of two pieces of work that overlap.

A collective occupies one streaming multiprocessor (SM) per channel, so fewer remain for a compute-bound kernel beside
it. Memory and link bandwidth are shared: if two users demand more than the capacity, both slow down in proportion.
Small latency-bound kernels neither slow others nor are slowed.

Compared with public data (docs/decisions/contention.md), this is right on average and imprecise for a single kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

_MOST = 3.0  # largest slowdown by one overlapping piece of work


@dataclasses.dataclass(frozen=True)
class Demand:
    """Resource demand of work that runs alone, as shares (0 to 1) of its GPU and of shared network ports."""

    channels: float = 0.0  # SMs that other work cannot use
    arithmetic: float = 0.0  # share of its time that is limited by its SMs
    memory: float = 0.0  # GPU memory bandwidth
    link_out: float = 0.0  # bandwidth to other GPUs of the node, one direction each
    link_in: float = 0.0
    port_out: float = 0.0  # network bandwidth, of what the GPU's group can use
    port_in: float = 0.0
    shared_out: float = 0.0  # one rank's part of a port shared by several GPUs; 0: the GPU has its own ports
    shared_in: float = 0.0


NOTHING = Demand()


@dataclasses.dataclass(frozen=True, eq=False)
class Paths:
    """The links of a described fabric that a transfer's flows cross; compared by identity."""

    links: tuple[int, ...]  # ascending
    flows_per_Bpns: tuple[float, ...]  # by link: flows that cross it over its bandwidth in bytes/ns


@dataclasses.dataclass(frozen=True)
class Flows:
    """What a transfer sends over a described fabric while it runs; all its flows go on in step."""

    bytes: int  # of each flow
    paths: Paths


def added_time(work: Demand, concurrent: Demand) -> float:
    """Seconds that ``concurrent`` work on the same GPU adds per second of ``work``.

    `presim.engine.slowdown` adds up ports shared by several GPUs.
    """
    held_share = min(concurrent.channels, 0.75)
    fewer = work.arithmetic * held_share / (1 - held_share)
    shared = max(
        _excess(work.memory, concurrent.memory),
        _excess(work.link_out, concurrent.link_out),
        _excess(work.link_in, concurrent.link_in),
        _excess(work.port_out, concurrent.port_out),
        _excess(work.port_in, concurrent.port_in),
    )
    return min(fewer + shared, _MOST)


def table(demands: Sequence[Demand]) -> list[list[float]]:
    """`added_time` for every pair."""
    return [[added_time(work, concurrent) for concurrent in demands] for work in demands]


def _excess(mine: float, other: float) -> float:
    """Combined demand of two users beyond the capacity."""
    return max(0.0, mine + other - 1) if mine and other else 0.0
