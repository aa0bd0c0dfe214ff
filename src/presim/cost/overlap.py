"""Resource use of running work, and the slowdown of two pieces of work that overlap.

A collective occupies one streaming multiprocessor (SM) per channel, so fewer remain for a compute-bound kernel beside
it. Memory and link bandwidth are shared: if two users demand more than the capacity, both slow down in proportion.
Small latency-bound kernels neither slow others nor are slowed.

Compared with public data (docs/decisions/contention.md), this is right on average and imprecise for a single kernel.
The user may choose another model of kernels beside communication (`model_of`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

from presim.errors import InputError

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
    stretch: float = 1.0  # the transfer's price over its price on a fabric that limits nothing; at least 1


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


class OverlapModel(Protocol):
    """What a kernel loses beside communication; other pairs of work follow `added_time` in every model."""

    def beside_communication(self, kernel: Demand, communication: Demand) -> float:
        """Seconds added per second of a kernel."""
        ...


@dataclasses.dataclass(frozen=True)
class Analytic:
    """`added_time`: SMs that channels occupy, and shared bandwidth."""

    def beside_communication(self, kernel: Demand, communication: Demand) -> float:
        """Seconds added per second of a kernel."""
        return added_time(kernel, communication)


@dataclasses.dataclass(frozen=True)
class Bandwidth:
    """Shared memory bandwidth alone; channels take nothing from kernels."""

    def beside_communication(self, kernel: Demand, communication: Demand) -> float:
        """Seconds added per second of a kernel."""
        return _excess(kernel.memory, communication.memory)


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Every kernel takes ``times`` as long, as Calculon, ASTRA-sim's analytical front ends and others assume."""

    times: float

    def beside_communication(self, kernel: Demand, communication: Demand) -> float:
        """Seconds added per second of a kernel."""
        return self.times - 1


@dataclasses.dataclass(frozen=True)
class Learned:
    """Linear in the memory bandwidth of both, fitted to kernels that were measured beside an all-reduce.

    The figures are those of NetX-lab/Echo-slowdown 7d698a7, kernels in fp32 on an A100 (`validation/overlap.py` fits
    them and shows their held-out error). Its all-reduce took a quarter of the memory bandwidth by presim's model; a
    collective that takes more or less slows kernels in proportion, which was not measured.
    """

    base: float = 0.131
    by_memory: float = 0.192
    all_reduce_memory: float = 0.25

    def beside_communication(self, kernel: Demand, communication: Demand) -> float:
        """Seconds added per second of a kernel."""
        share = min(communication.memory / self.all_reduce_memory, 1 / self.all_reduce_memory)
        return min(share * (self.base + self.by_memory * kernel.memory), _MOST)


ANALYTIC = Analytic()
_MODELS: dict[str, OverlapModel] = {"analytic": ANALYTIC, "bandwidth": Bandwidth(), "learned": Learned()}


def model_of(text: str) -> OverlapModel:
    """The model that a text names: analytic, bandwidth, learned or ratio=X.

    >>> model_of("ratio=1.2")
    Ratio(times=1.2)

    Raises:
        InputError: it names none, or the ratio is not from 1 to 4.
    """
    name, _, number = text.partition("=")
    if name == "ratio" and number:
        try:
            times = float(number)
        except ValueError:
            times = math.nan
        if not 1 <= times <= 1 + _MOST:
            raise InputError(f"--overlap-model ratio=X takes a number from 1 to {1 + _MOST:g}; got {number!r}")
        return Ratio(times)
    if text not in _MODELS:
        raise InputError(f"--overlap-model takes {', '.join(_MODELS)} or ratio=X, such as ratio=1.2; got {text!r}")
    return _MODELS[text]


def described(model: OverlapModel) -> str:
    """The model as `model_of` reads it."""
    names = {other: name for name, other in _MODELS.items()}
    return f"ratio={model.times:g}" if isinstance(model, Ratio) else names.get(model, type(model).__name__)


def table(demands: Sequence[Demand], model: OverlapModel = ANALYTIC) -> list[list[float]]:
    """Seconds that the second work of each pair adds per second of the first."""
    return [[_added_in(model, work, concurrent) for concurrent in demands] for work in demands]


def _added_in(model: OverlapModel, work: Demand, concurrent: Demand) -> float:
    if work == NOTHING or work.channels or not concurrent.channels:
        return added_time(work, concurrent)
    return model.beside_communication(work, concurrent)


def _excess(mine: float, other: float) -> float:
    """Combined demand of two users beyond the capacity."""
    return max(0.0, mine + other - 1) if mine and other else 0.0
