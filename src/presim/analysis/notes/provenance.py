"""Uncertainty of the step time: shares of prices by origin, and the resulting interval."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np

from presim.analysis.time.breakdown import Breakdown, Instant
from presim.cost.price import Origin, PricedTrace
from presim.engine.calls import CallCosts
from presim.hardware.constants import value
from presim.result import Provenance, Share
from presim.trace.schema import Trace
from presim.trace.signatures import Collective, Signature, family

CONTENTION_UNCERTAINTY = value("interval.contention")
HOST_UNCERTAINTY = value("interval.host_bound")  # relative, of the time in which the device waits for the host


_REPLAYED = 0.02  # as the kernels of a profile (presim.cost.profiled)


@dataclasses.dataclass(frozen=True)
class Spread:
    """Constants of the interval (docs/decisions/intervals.md); sources: `presim.hardware.constants`."""

    prices_together: float = value("interval.prices_together")
    clusters: float = value("interval.clusters")
    experts: float = value("interval.experts")
    host_slower: float = value("interval.host_slower")


SPREAD = Spread()
METHOD = (
    "80 % interval. Prices of one class (signature family or kind of collective) share an error of "
    f"{SPREAD.prices_together:.0%} of their own uncertainty. Errors of different classes are independent and combine "
    "in quadrature with: the common error of a GPU model without measurements, 60 % of the time that contention within "
    f"a GPU adds, {SPREAD.clusters:.0%} of the step for differences between clusters and, if tokens go to experts of "
    f"other ranks, {SPREAD.experts:.0%} of the step for their loads and exchanges. Guessed kernels may take a tenth of "
    "their time or ten times as long, and a step up to 1.7 times its roofline. The host may need "
    f"{HOST_UNCERTAINTY:.0%} less CPU time, or "
    f"{SPREAD.host_slower:g} times as much; if that is longer than the step, it raises the upper end. Not covered: "
    "hidden communication that would be exposed if it took longer, and effects listed as not modelled."
)


_OF_EXPERTS = re.compile(r"expert|(^|[^a-z])ep([^a-z]|$)")  # names of groups: EXPERT_MODEL_PARALLEL_GROUP, mesh_ep


@dataclasses.dataclass(frozen=True)
class Doubts:
    """Contributions to the uncertainty of a step time, ns."""

    step: float
    prices: float  # stated uncertainty: added within a class, in quadrature between classes
    contention: float  # without shared ports: sharing is exact, and the uncertainty of prices covers the rest
    host_bound: float  # the device waits for the host
    host: float  # CPU time that the host spends on the step, whether the device waits for it or not
    experts: bool = False  # tokens are sent to experts on other ranks
    shared: float = 0.0  # error that all prices of this hardware share, without guesses
    guess_shorter: float = 0.0  # by how much guesses may be too long, in total
    underestimate: float = 0.0  # by how much guesses and lower bounds may be too short, in total
    host_doubt: float = HOST_UNCERTAINTY  # relative, of host_bound

    @classmethod
    def of(cls, priced: PricedTrace, breakdown: Breakdown, step_ns: int, host_ns: float) -> Doubts:
        """The uncertainties of one step."""
        by_class: dict[str, float] = {}
        shared = guess_shorter = underestimate = 0.0
        critical = critical_by_signature(priced, breakdown)
        for signature, price, spent in zip(priced.trace.signatures, priced.prices, critical):
            underestimate += price.longer * spent
            if price.origin == Origin.GUESSED:
                guess_shorter += price.uncertainty * spent
                continue
            name = signature_class(signature)
            by_class[name] = by_class.get(name, 0.0) + price.uncertainty * spent
            shared += price.shared * spent
        prices = math.hypot(*by_class.values())
        host_bound = breakdown.spent_ns[Instant.HOST_BOUND]
        experts = reaches_experts(priced.trace)
        contention = breakdown.contention_ns - breakdown.ports_ns
        doubt = host_doubt(priced)
        return cls(
            step_ns, prices, contention, host_bound, host_ns, experts, shared, guess_shorter, underestimate, doubt
        )

    def interval(self, spread: Spread = SPREAD) -> tuple[float, float]:
        """The 80 % interval of the step time, ns."""
        contention = CONTENTION_UNCERTAINTY * self.contention
        loads = spread.experts * self.step if self.experts else 0.0
        around = math.hypot(
            spread.prices_together * self.prices, self.shared, contention, spread.clusters * self.step, loads
        )
        shorter = math.hypot(around, self.host_doubt * self.host_bound, self.guess_shorter)
        slower = spread.host_slower if self.host_doubt == HOST_UNCERTAINTY else 1 + self.host_doubt
        longer = math.hypot(around, max(0.0, slower * self.host - self.step), self.underestimate)
        return max(self.step - shorter, 0.0), self.step + longer


def host_doubt(priced: PricedTrace) -> float:
    """Relative uncertainty of the time in which the device waits for the host; the replay of a profile measured it."""
    replayed = priced.trace.manifest.measured is not None and all(
        price.origin == Origin.MEASURED for price in priced.prices
    )
    return _REPLAYED if replayed else HOST_UNCERTAINTY


def reaches_experts(trace: Trace) -> bool:
    """Whether tokens are sent to experts on other ranks: by a library, an uneven all-to-all, or an expert group."""
    named = {index for index, group in enumerate(trace.manifest.groups) if _OF_EXPERTS.search(group.name.lower())}
    calls = (signature for signature in trace.signatures if isinstance(signature, Collective))
    return any(call.routed or call.splits or (call.kind == "all_to_all" and call.group in named) for call in calls)


def host_ns(trace: Trace, entries: slice, factor: float, calls: CallCosts) -> float:
    """CPU time of the host for some entries; ``factor``: target host time over captured host time."""
    return float(trace.columns["host_ns"][entries].sum()) * factor + float(calls.of(trace)[entries].sum())


def signature_class(signature: Signature) -> str:
    """The class whose prices are assumed to have the same relative error."""
    return signature.kind if isinstance(signature, Collective) else family(signature)


def provenance(priced: PricedTrace, breakdown: Breakdown, step_ns: int) -> Provenance:
    """Share of the step time by origin of its prices; idle time has no origin."""
    sums: dict[str, tuple[float, float, float, set[str]]] = {}
    for price, spent in zip(priced.prices, critical_by_signature(priced, breakdown)):
        if spent:
            name = Origin(price.origin).name.lower()
            seconds, doubt, longer, names = sums.get(name, (0.0, 0.0, 0.0, set()))
            longer += spent * max(price.uncertainty, price.longer)
            sums[name] = (seconds + spent, doubt + spent * price.uncertainty, longer, names | {price.estimator})
    if host := float(breakdown.spent_ns[Instant.HOST_BOUND]):
        doubt = host * host_doubt(priced)
        sums["host"] = (host, doubt, doubt, {"capture"})
    shares = [
        Share(
            name, sorted(names), spent / 1e9, spent / max(step_ns, 1), doubt / spent, longer / spent * (longer > doubt)
        )
        for name, (spent, doubt, longer, names) in sums.items()
    ]
    return Provenance(sorted(shares, key=lambda share: (-share.seconds, share.name)), METHOD)


def critical_by_signature(priced: PricedTrace, breakdown: Breakdown) -> list[float]:
    """Critical time of each signature of the table, ns."""
    signature = priced.trace.columns["signature"].astype(np.int64)
    has_signature = signature >= 0
    sums = np.bincount(
        signature[has_signature], weights=breakdown.critical_ns[has_signature], minlength=len(priced.prices)
    )
    return [float(value) for value in sums]
