"""Energy of a step: the time of each class of work multiplied by its power.

Power is a share of the GPU's limit by class of work (`presim/hardware/constants/power.toml`). Communication hidden
behind kernels adds its power above idle; the sum never exceeds the limit. A collective that waits for other ranks
spins on a few SMs and counts as idle. Throttling at the power limit is not modelled here: measured kernel times
include it.
"""

from __future__ import annotations

import numpy as np

from presim.analysis.time.breakdown import Breakdown, Instant, is_transfer
from presim.analysis.time.segments import Floats, Ints
from presim.analysis.time.steps import Step
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.hardware.power import shares
from presim.result.energy import Energy, PowerPart
from presim.trace.schema import Kind
from presim.trace.signatures import Elementwise

_KERNELS = ("compute", "memory", "latency")


def energy(priced: PricedTrace, parts: Breakdown, limit_watts: float) -> Energy | None:
    """Energy of the steady step; None if the power limit is unknown or nothing ran."""
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
    """Seconds by class of work; they add up to the step."""
    spent = parts.spent_ns
    trace = priced.trace
    work = trace.mask(Kind.WORK)
    critical = np.bincount(
        trace.columns["signature"][work].astype(np.int64), parts.critical_ns[work], minlength=len(trace.signatures)
    )
    memory_bound_ns = float(spent[Instant.COMPUTE])
    seconds = {}
    classes = _power_classes(priced)
    for bound in ("compute", "latency"):
        bounded = np.array([name == bound for name in classes], np.bool_)
        seconds[bound] = min(float(critical[: len(bounded)][bounded].sum()), memory_bound_ns)
        memory_bound_ns -= seconds[bound]
    nanoseconds = {
        "compute": seconds["compute"],
        "memory": memory_bound_ns,
        "latency": seconds["latency"],
        "communication": spent[Instant.EXPOSED_COMMUNICATION] + spent[Instant.WAITING] + spent[Instant.EXPOSED_COPY],
        "idle": spent[Instant.HOST_BOUND] + spent[Instant.IDLE],
    }
    return {name: float(ns) / 1e9 for name, ns in nanoseconds.items()}


def _power_classes(priced: PricedTrace) -> list[str]:
    """What bounds each signature, as far as its power goes.

    Element-wise kernels that are bound by their instructions draw as much as those bound by memory: steps that are half
    of them draw 528 W on an H100 (validation/results/gpu-power.md, ConvNeXt V2).
    """
    return [
        "memory" if price.bound == "compute" and isinstance(signature, Elementwise) else price.bound
        for signature, price in zip(priced.trace.signatures, priced.prices)
    ]


def _joules(seconds: dict[str, float], hidden: float, limit_watts: float, end: str) -> dict[str, float]:
    """Joules by class of work, for one bound of the power shares."""
    share = {name: float(getattr(shares()[name], end)) for name in seconds}
    joules = {name: seconds[name] * share[name] * limit_watts for name in seconds}
    busy = sum(seconds[name] for name in _KERNELS)
    room = sum(seconds[name] * (1 - share[name]) for name in _KERNELS)
    hidden_share_s = min(hidden, busy) * max(share["communication"] - share["idle"], 0)
    joules["communication"] += min(hidden_share_s, room) * limit_watts
    return joules


def power_over_time(
    priced: PricedTrace, timeline: Timeline, step: Step, limit_watts: float, points: int
) -> tuple[Floats, Floats]:
    """Power of one GPU over a step: ends of equal intervals in ns, and the mean watts of each interval."""
    trace = priced.trace
    edges = np.linspace(step.start_ns, step.end_ns, points + 1)
    signature_index = trace.columns["signature"].astype(np.int64)
    bounds = np.array(_power_classes(priced) or [""])[signature_index]
    work, sends = trace.mask(Kind.WORK), trace.mask(Kind.COLLECTIVE)
    is_copy = (
        np.array([is_transfer(signature) for signature in trace.signatures] or [False], np.bool_)[signature_index]
        & work
    )
    kernels = work & ~is_copy
    masks = {name: kernels & (bounds == name) for name in ("compute", "latency")}
    masks["memory"] = kernels & ~masks["compute"] & ~masks["latency"]
    masks["communication"] = sends | is_copy
    busy = {name: _busy_shares(timeline.start_ns[mask], timeline.end_ns[mask], edges) for name, mask in masks.items()}
    busy["memory"] = np.minimum(busy["memory"], 1 - busy["compute"])
    busy["latency"] = np.minimum(busy["latency"], 1 - busy["compute"] - busy["memory"])
    idle = shares()["idle"].share
    share = idle + sum(busy[name] * (shares()[name].share - idle) for name in busy)
    return edges[1:], np.minimum(share, 1.0) * limit_watts


def _busy_shares(start: Ints, end: Ints, edges: Floats) -> Floats:
    """The share of each interval in which any of the work runs."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order]) if len(order) else end
    begin = np.maximum(start, np.concatenate([start[:1], end[:-1]]))
    length = np.maximum(end - begin, 0)
    before = np.concatenate([[0], np.cumsum(length)])
    begun_count = np.searchsorted(begin, edges, "right")
    inside = np.maximum(begun_count - 1, 0)
    if not len(start):
        return np.zeros(len(edges) - 1)
    spent = before[begun_count] - np.where(
        begun_count > 0, np.maximum(end[inside] - edges, 0).clip(max=length[inside]), 0
    )
    return np.clip(np.diff(spent) / np.maximum(np.diff(edges), 1e-9), 0, 1)
