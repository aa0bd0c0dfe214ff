"""Energy of a step: the time of each class of work times the power that GPUs draw in it.

Power is a share of the GPU's limit, by class (`presim/calibration/power.toml`). Communication that is hidden behind
kernels adds what it draws beyond an idle GPU, and a GPU never draws more than its limit. Clocks that fall at the limit
are part of the measured kernel prices, not of this estimate.
"""

from __future__ import annotations

import numpy as np

from presim.analysis.time.breakdown import Breakdown, Instant
from presim.cost.price import PricedTrace
from presim.figures.energy import Energy, PowerPart
from presim.hardware.power import shares
from presim.trace.schema import Kind


def energy(priced: PricedTrace, parts: Breakdown, limit_watts: float) -> Energy | None:
    """The steady step's energy; None where the GPU's limit is not known or nothing ran."""
    seconds = _seconds(priced, parts)
    total = sum(seconds.values())
    if not limit_watts or not total:
        return None
    exposed = parts.spent_ns[Instant.EXPOSED_COMMUNICATION]
    hidden = max(parts.communication_ns - exposed, 0) / 1e9
    low, middle, high = (_joules(seconds, hidden, limit_watts, end) for end in ("low", "share", "high"))
    watts = {name: shares()[name].share * limit_watts for name in seconds}
    return Energy(
        joules=sum(middle.values()),
        joules_low=sum(low.values()),
        joules_high=sum(high.values()),
        watts=sum(middle.values()) / total,
        limit_watts=limit_watts,
        parts=[PowerPart(name, seconds[name], watts[name], middle[name]) for name in seconds if middle[name]],
    )


def _seconds(priced: PricedTrace, parts: Breakdown) -> dict[str, float]:
    """Class of work -> seconds; they add up to the step."""
    spent = parts.spent_ns
    trace = priced.trace
    work = trace.mask(Kind.WORK)
    critical = np.bincount(
        trace.columns["signature"][work].astype(np.int64), parts.critical_ns[work], minlength=len(trace.signatures)
    )
    is_compute = np.array([price.bound == "compute" for price in priced.prices], np.bool_)
    compute = min(float(critical[: len(is_compute)][is_compute].sum()), float(spent[Instant.COMPUTE]))
    return {
        "compute": compute / 1e9,
        "memory": (spent[Instant.COMPUTE] - compute) / 1e9,
        "communication": (spent[Instant.EXPOSED_COMMUNICATION] + spent[Instant.WAITING] + spent[Instant.EXPOSED_COPY])
        / 1e9,
        "idle": (spent[Instant.HOST_BOUND] + spent[Instant.IDLE]) / 1e9,
    }


def _joules(seconds: dict[str, float], hidden: float, limit_watts: float, end: str) -> dict[str, float]:
    """Class of work -> joules with one end of the shares."""
    share = {name: float(getattr(shares()[name], end)) for name in seconds}
    joules = {name: seconds[name] * share[name] * limit_watts for name in seconds}
    busy = seconds["compute"] + seconds["memory"]
    room = seconds["compute"] * (1 - share["compute"]) + seconds["memory"] * (1 - share["memory"])
    beside = min(hidden, busy) * max(share["communication"] - share["idle"], 0)
    joules["communication"] += min(beside, room) * limit_watts
    return joules
