"""Prices: the duration of a signature, its origin, and its uncertainty."""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cost.overlap import Demand, Flows
from presim.trace.schema import Trace
from presim.trace.signatures import Signature


class Origin(enum.IntEnum):
    """Origin of a price, best first."""

    MEASURED = 0
    INTERPOLATED = 1
    LEARNED = 2
    ANALYTIC = 3
    GUESSED = 4  # no estimator covers the work


class Price(msgspec.Struct, frozen=True):
    """The duration of one piece of device work, running alone.

    ``uncertainty`` is relative: the true duration lies within ``duration_ns * (1 ± uncertainty)`` in 80 of 100 cases.
    ``shared`` is the part that all prices of this hardware have in common, which does not average out over a step:
    constants of another GPU generation, or a GPU model without measurements. Where work
    may take longer by more than that, as under a lower bound or a guess, ``longer`` says by how much of its duration.
    """

    duration_ns: int
    origin: Origin
    uncertainty: float
    estimator: str  # name of the estimator
    bound: str = ""  # bottleneck: compute, memory, latency, network, link (to the host or a peer); empty: unknown
    shared: float = 0.0
    longer: float = 0.0


class Estimator(Protocol):
    """Prices the signatures it covers; implementations pass ``tests/conformance/test_estimators.py``."""

    name: str

    def price(self, signatures: list[Signature]) -> list[Price | None]:
        """Return one price per signature, None if not covered. Same input, same answer."""
        ...


@dataclasses.dataclass(frozen=True)
class OnFabric:
    """Traffic and prices of a trace's collectives on a described network, by signature."""

    flows: tuple[Flows | None, ...]
    together_ns: tuple[int, ...]  # prices as if all groups of a kind exchanged at once
    crowding: tuple[float, ...]  # share of these that is contention between groups of a kind


@dataclasses.dataclass(frozen=True)
class PricedTrace:
    """A trace and one price per signature of its table."""

    trace: Trace
    prices: tuple[Price, ...]
    uncovered: tuple[int, ...] = ()  # signatures without an estimator; their prices are guesses
    demands: tuple[Demand, ...] = ()  # resource demand of each signature; empty: no contention
    not_modelled: tuple[str, ...] = ()  # effects that the prices leave out, as sentences
    notes: tuple[str, ...] = ()  # information about the prices, as sentences
    ports: tuple[int, ...] = ()  # shared port by rank of the world; empty: every GPU has its own ports
    fabric: OnFabric | None = None  # None: no network is described, or none was asked

    def durations_ns(self) -> NDArray[np.int64]:
        """Duration of each entry; 0 for entries other than device work."""
        table = np.array([price.duration_ns for price in self.prices] + [0], np.int64)
        return table[self.trace.columns["signature"].astype(np.int64)]


def at_least(price: Price, least_ns: float, bound: str) -> Price:
    """The price, but at least ``least_ns``, which ``bound`` then limits; measured prices as they are."""
    if price.origin in (Origin.MEASURED, Origin.INTERPOLATED) or price.duration_ns >= least_ns:
        return price
    return msgspec.structs.replace(price, duration_ns=math.ceil(least_ns), bound=bound)
