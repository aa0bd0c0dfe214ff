"""How sure the step time is: which origins it rests on, and the interval that follows from their uncertainties."""

from __future__ import annotations

import math

import numpy as np

from presim.analysis.breakdown import Breakdown, Instant
from presim.cost.price import Origin, PricedTrace
from presim.result import Provenance, Share
from presim.trace.signatures import Collective, Signature, family

HOST_UNCERTAINTY = 0.5  # a guess, on purpose wide: host time was measured on whatever CPU captured the trace
# What a study of four A100 or H100 found for compute beside communication is 18.9 % on average and 40.0 % at most
# (arXiv 2507.03114); NCCL's users report single kernels that take 1.8 times as long (NVIDIA/nccl issue 1428).
CONTENTION_UNCERTAINTY = 0.6
METHOD = (
    "80 % interval. Prices of one class (signature family, or kind of collective) are taken to be wrong together: "
    "their errors add. Classes are taken to be wrong independently: they combine in quadrature. Only what is on the "
    "critical path of the step counts; host-bound time counts with 50 %, what contention adds with 60 %. Not covered: "
    "hidden communication that would show if it took longer, and whatever is listed as not modelled."
)


def signature_class(signature: Signature) -> str:
    """The class within which pricing errors are taken to be the same."""
    return signature.kind if isinstance(signature, Collective) else family(signature)


def step_uncertainty_ns(priced: PricedTrace, breakdown: Breakdown) -> float:
    """Half the width of the 80 % interval of the step time, ns."""
    by_class: dict[str, float] = {
        "host": HOST_UNCERTAINTY * breakdown.spent_ns[Instant.HOST_BOUND],
        "contention": CONTENTION_UNCERTAINTY * breakdown.contention_ns,
    }
    for signature, price, spent in zip(
        priced.trace.signatures, priced.prices, critical_by_signature(priced, breakdown)
    ):
        name = signature_class(signature)
        by_class[name] = by_class.get(name, 0.0) + price.uncertainty * spent
    return math.sqrt(sum(value * value for value in by_class.values()))


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
