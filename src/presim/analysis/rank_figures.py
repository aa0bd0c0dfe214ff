"""Figures of each captured rank: number of ranks it represents, memory, and parts of its step time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from presim.analysis.memory.blocks import allocated_bytes, reserved_bytes
from presim.analysis.time.breakdown import Breakdown, Instant
from presim.analysis.time.steps import Step
from presim.result import Rank
from presim.trace.collate import Communicators
from presim.trace.representatives import Representatives
from presim.trace.schema import Trace
from presim.trace.signatures import Collective
from presim.units import seconds

_NOTABLE = 0.02  # share of the step; smaller differences between ranks are not reported


def rank_figures(trace: Trace, step: Step, parts: Breakdown, represented: int) -> Rank:
    """The figures of one rank; ``represented``: number of ranks of the world that it represents, including itself."""
    manifest = trace.manifest
    counted = manifest.allocator or {  # steps that were changed after their capture: no PyTorch has counted them
        "peak_allocated_bytes": int(allocated_bytes(trace).max(initial=0)),
        "peak_reserved_bytes": int(reserved_bytes(trace).max(initial=0)),
    }
    spent = {kind: value / 1e9 for kind, value in parts.spent_ns.items()}
    return Rank(
        rank=manifest.rank,
        represented=represented,
        step_time_s=step.duration_ns / 1e9,
        compute_s=spent[Instant.COMPUTE],
        exposed_communication_s=spent[Instant.EXPOSED_COMMUNICATION] + spent[Instant.WAITING],
        waiting_s=spent[Instant.WAITING],
        bubble_s=_bubble_ns(trace, parts) / 1e9 + spent[Instant.IDLE],
        host_bound_s=spent[Instant.HOST_BOUND],
        peak_allocated_bytes=counted.get("peak_allocated_bytes", 0),
        peak_reserved_bytes=counted.get("peak_reserved_bytes", 0),
        parameters=manifest.model.get("parameters_local"),
        exit=manifest.exit,
    )


def find_fullest_rank(traces: Sequence[Trace]) -> int:
    """The rank that decides whether the job fits: one that ran out of memory, else the one that reserves most."""

    def fills(trace: Trace) -> tuple[bool, int, int]:
        reserved = reserved_bytes(trace)
        return trace.manifest.exit == "out_of_memory", int(reserved.max()) if len(reserved) else 0, -trace.manifest.rank

    return max(traces, key=fills).manifest.rank


def straggler_note(ranks: Sequence[Rank]) -> list[str]:
    """A note on the straggler and on the rank that waits longest; none if no rank waits long."""
    if len(ranks) < 2:
        return []
    busiest = max(ranks, key=lambda rank: (rank.compute_s + rank.host_bound_s, -rank.rank))
    waiting = max(ranks, key=lambda rank: (_waiting_s(rank), -rank.rank))
    if _waiting_s(waiting) - _waiting_s(busiest) < _NOTABLE * busiest.step_time_s:
        return []
    work = f"{seconds(busiest.compute_s + busiest.host_bound_s)} of work in a step of {seconds(busiest.step_time_s)}"
    return [
        f"Rank {busiest.rank} is the straggler with {work}; "
        f"rank {waiting.rank} waits longest for other ranks, {seconds(_waiting_s(waiting))}."
    ]


def unmatched_group_note(traces: Sequence[Trace], representatives: Representatives) -> list[str]:
    """A note on a group that the representative of one of its members lacks; empty if there is none."""
    communicators = Communicators(traces, representatives)
    for trace in traces:
        rank, groups = trace.manifest.rank, trace.manifest.groups
        called = {signature.group for signature in trace.signatures if isinstance(signature, Collective)}
        for index in sorted(called & set(range(len(groups)))):
            membership = communicators.memberships(rank)[index]
            pair = communicators.unmatched(membership) if membership else None
            if pair:
                return [
                    f"Ranks {rank} and {pair[0]} communicate in group {groups[index].name!r}, but rank {pair[1]}, "
                    f"which represents rank {pair[0]}, has no such group: rank {rank} does not wait for it. "
                    f"Capture both with --ranks {rank},{pair[0]}."
                ]
    return []


def _waiting_s(rank: Rank) -> float:
    """Step time beyond the rank's own compute and host time."""
    return max(rank.step_time_s - rank.compute_s - rank.host_bound_s, 0.0)


def _bubble_ns(trace: Trace, parts: Breakdown) -> float:
    """Exposed time of sends and receives, in which a stage waits for its neighbours, ns."""
    messages = [
        isinstance(signature, Collective) and signature.kind in ("send", "recv", "send_recv")
        for signature in trace.signatures
    ]
    is_message = np.array([*messages, False])[trace.columns["signature"].astype(np.int64)]
    return float((parts.critical_ns + parts.waiting_ns)[is_message].sum())
