"""The captured ranks side by side: what each stands for, its memory, and where its step goes."""

from __future__ import annotations

import numpy as np

from presim.analysis.breakdown import Breakdown, Instant, break_down
from presim.analysis.steps import find_steps
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.result import Rank
from presim.trace.schema import Trace
from presim.trace.signatures import Collective


def rank_figures(priced: PricedTrace, timeline: Timeline, represented: int, launch_latency_ns: int) -> Rank:
    """One line; ``represented``: how many ranks of the world it stands for, itself included."""
    trace = priced.trace
    manifest = trace.manifest
    step = find_steps(trace, timeline).steady
    parts = break_down(trace, timeline, step, launch_latency_ns=launch_latency_ns)
    spent = {kind: value / 1e9 for kind, value in parts.spent_ns.items()}
    return Rank(
        rank=manifest.rank,
        represented=represented,
        step_time_s=step.duration_ns / 1e9,
        compute_s=spent[Instant.COMPUTE],
        exposed_communication_s=spent[Instant.EXPOSED_COMMUNICATION],
        bubble_s=_bubble_ns(trace, parts) / 1e9 + spent[Instant.IDLE],
        host_bound_s=spent[Instant.HOST_BOUND],
        peak_allocated_bytes=manifest.allocator.get("peak_allocated_bytes", 0),
        peak_reserved_bytes=manifest.allocator.get("peak_reserved_bytes", 0),
        parameters=manifest.model.get("parameters_local"),
        exit=manifest.exit,
    )


def _bubble_ns(trace: Trace, parts: Breakdown) -> float:
    """Exposed sends and receives: the time that a stage waits for its neighbours."""
    messages = [
        isinstance(signature, Collective) and signature.kind in ("send", "recv", "send_recv")
        for signature in trace.signatures
    ]
    is_message = np.array([*messages, False])[trace.columns["signature"].astype(np.int64)]
    return float(parts.critical_ns[is_message].sum())
