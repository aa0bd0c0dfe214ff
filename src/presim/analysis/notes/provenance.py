"""Uncertainty of the step time: shares of prices by origin, and the resulting interval."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np

from presim.analysis.time.breakdown import Breakdown, Instant
from presim.calibration import value
from presim.cost.price import Origin, PricedTrace
from presim.engine.calls import CallCosts
from presim.result import Provenance, Share
from presim.trace.schema import Trace
from presim.trace.signatures import Collective, Signature, family

CONTENTION_UNCERTAINTY = value("interval.contention")
HOST_UNCERTAINTY = value("interval.host_bound")  # of a second in which the device waits for the host


@dataclasses.dataclass(frozen=True)
class Spread:
    """How uncertainties become an interval (docs/decisions/intervals.md); `presim.calibration` says what each means."""

    together: float = value("interval.prices_together")
    clusters: float = value("interval.clusters")
    experts: float = value("interval.experts")
    host_slower: float = value("interval.host_slower")


SPREAD = Spread()
METHOD = (
    "80 % interval. Prices of one class (signature family, or kind of collective) are taken to be wrong together, by "
    f"{SPREAD.together:.0%} of their own uncertainty, and classes independently: they combine in quadrature, with what "
    "all prices of a GPU may be wrong by together where nobody measured it, 60 % of what contention within a GPU adds, "
    f"{SPREAD.clusters:.0%} of the step by which clusters differ and, where tokens go to experts of other ranks, "
    f"{SPREAD.experts:.0%} of it by which their loads and exchanges do. Kernels that are guessed may take a tenth of "
    f"their time or ten times as long. The host may need {HOST_UNCERTAINTY:.0%} less, or {SPREAD.host_slower:g} times "
    "its CPU time: where that is longer than the step it widens the upper end. Not covered: hidden communication that "
    "would show if it took longer, and whatever is listed as not modelled."
)


_OF_EXPERTS = re.compile(r"expert|(^|[^a-z])ep([^a-z]|$)")  # names of groups: EXPERT_MODEL_PARALLEL_GROUP, mesh_ep


@dataclasses.dataclass(frozen=True)
class Doubts:
    """What makes a step time uncertain, ns."""

    step: float
    prices: float  # their stated uncertainty: added within a class, in quadrature between classes
    contention: float  # without that of shared ports: how they share is certain, and the prices' doubt covers the rest
    host_bound: float  # the device waits for the host
    host: float  # CPU time that the host spends on the step, whether the device waits for it or not
    experts: bool = False  # tokens go to the experts of other ranks
    shared: float = 0.0  # what all prices of this hardware may be wrong by together, without guesses
    guess_shorter: float = 0.0  # what guesses may be too long by, together
    guess_longer: float = 0.0  # and too short

    @classmethod
    def of(cls, priced: PricedTrace, breakdown: Breakdown, step_ns: int, host_ns: float) -> Doubts:
        """Those of one step."""
        by_class: dict[str, float] = {}
        shared = shorter = longer = 0.0
        critical = critical_by_signature(priced, breakdown)
        for signature, price, spent in zip(priced.trace.signatures, priced.prices, critical):
            if price.origin == Origin.GUESSED:
                shorter, longer = shorter + price.uncertainty * spent, longer + price.longer * spent
                continue
            name = signature_class(signature)
            by_class[name] = by_class.get(name, 0.0) + price.uncertainty * spent
            shared += price.shared * spent
        prices = math.hypot(*by_class.values())
        host_bound = breakdown.spent_ns[Instant.HOST_BOUND]
        experts = reaches_experts(priced.trace)
        contention = breakdown.contention_ns - breakdown.ports_ns
        return cls(step_ns, prices, contention, host_bound, host_ns, experts, shared, shorter, longer)

    def interval(self, spread: Spread = SPREAD) -> tuple[float, float]:
        """The 80 % interval of the step time, ns."""
        contention = CONTENTION_UNCERTAINTY * self.contention
        loads = spread.experts * self.step if self.experts else 0.0
        around = math.hypot(spread.together * self.prices, self.shared, contention, spread.clusters * self.step, loads)
        shorter = math.hypot(around, HOST_UNCERTAINTY * self.host_bound, self.guess_shorter)
        longer = math.hypot(around, max(0.0, spread.host_slower * self.host - self.step), self.guess_longer)
        return max(self.step - shorter, 0.0), self.step + longer


def reaches_experts(trace: Trace) -> bool:
    """Whether tokens go to experts of other ranks: by a library, in parts that differ, or in a group named for them."""
    named = {index for index, group in enumerate(trace.manifest.groups) if _OF_EXPERTS.search(group.name.lower())}
    calls = (signature for signature in trace.signatures if isinstance(signature, Collective))
    return any(call.routed or call.splits or (call.kind == "all_to_all" and call.group in named) for call in calls)


def host_ns(trace: Trace, entries: slice, factor: float, calls: CallCosts) -> float:
    """CPU time that the host spends on some entries; ``factor``: on the target over where it was captured."""
    return float(trace.columns["host_ns"][entries].sum()) * factor + float(calls.of(trace)[entries].sum())


def signature_class(signature: Signature) -> str:
    """The class within which pricing errors are taken to be the same."""
    return signature.kind if isinstance(signature, Collective) else family(signature)


def provenance(priced: PricedTrace, breakdown: Breakdown, step_ns: int) -> Provenance:
    """Share of the step time by origin of its prices; idle time rests on none."""
    sums: dict[str, tuple[float, float, set[str]]] = {}
    for price, spent in zip(priced.prices, critical_by_signature(priced, breakdown)):
        if spent:
            name = Origin(price.origin).name.lower()
            seconds, doubt, names = sums.get(name, (0.0, 0.0, set()))
            sums[name] = (seconds + spent, doubt + spent * price.uncertainty, names | {price.estimator})
    if host := float(breakdown.spent_ns[Instant.HOST_BOUND]):
        sums["host"] = (host, host * HOST_UNCERTAINTY, {"capture"})
    shares = [
        Share(name, sorted(names), spent / 1e9, spent / max(step_ns, 1), doubt / spent)
        for name, (spent, doubt, names) in sums.items()
    ]
    return Provenance(sorted(shares, key=lambda share: (-share.seconds, share.name)), METHOD)


def critical_by_signature(priced: PricedTrace, breakdown: Breakdown) -> list[float]:
    """The step time that rests on each signature of the table, ns."""
    signature = priced.trace.columns["signature"].astype(np.int64)
    known = signature >= 0
    sums = np.bincount(signature[known], weights=breakdown.critical_ns[known], minlength=len(priced.prices))
    return [float(value) for value in sums]
