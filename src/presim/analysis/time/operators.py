"""Device time of a step by operator, by signature family and by collective."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from presim.analysis.time.breakdown import Breakdown
from presim.analysis.time.flops import executed_flops
from presim.analysis.time.steps import Step
from presim.engine.timeline import Timeline
from presim.result import Collective, Operator
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Collective as CollectiveSignature
from presim.trace.signatures import Signature, family


def by_operator(trace: Trace, timeline: Timeline, step: Step, breakdown: Breakdown) -> list[Operator]:
    """Device time by the operator that launched it, longest first; without one, by family."""
    operator = trace.columns["operator"].astype(np.int64)

    def name(entry: int, signature: Signature) -> str:
        index = int(operator[entry])
        return trace.operators[index] if index >= 0 else f"({_family_name(signature)})"

    return _table(trace, timeline, step, breakdown, name)


def by_family(trace: Trace, timeline: Timeline, step: Step, breakdown: Breakdown) -> list[Operator]:
    """Device time by signature family, longest first; collectives by their kind."""
    return _table(trace, timeline, step, breakdown, lambda _, signature: _family_name(signature))


def by_collective(trace: Trace, timeline: Timeline, step: Step, breakdown: Breakdown) -> list[Collective]:
    """Communication of the step by process group and kind, most exposed first."""
    entries = _device_entries(trace, step, Kind.COLLECTIVE)
    duration = timeline.end_ns - timeline.start_ns
    rows: dict[tuple[int, str], _Sums] = {}
    for entry, index in zip(entries.tolist(), trace.columns["signature"][entries].tolist()):
        signature = trace.signatures[index]
        assert isinstance(signature, CollectiveSignature)  # trace.check holds this for all that is read
        row = rows.setdefault((signature.group, signature.kind), _Sums())
        row.count += 1
        row.bytes += signature.even.bytes
        row.duration_ns += int(duration[entry])
        row.critical_ns += float(breakdown.critical_ns[entry] + breakdown.waiting_ns[entry])
    collectives = [_collective(trace, group, kind, row) for (group, kind), row in rows.items()]
    return sorted(collectives, key=lambda item: (-item.exposed_s, -item.seconds, item.group, item.kind))


@dataclasses.dataclass
class _Sums:
    """What is added up over the entries of one line."""

    count: int = 0
    duration_ns: int = 0
    critical_ns: float = 0.0
    flops: int = 0
    bytes: int = 0


def _collective(trace: Trace, group: int, kind: str, sums: _Sums) -> Collective:
    groups = trace.manifest.groups
    known = groups[group] if 0 <= group < len(groups) else None
    return Collective(
        group=known.name if known else f"group {group}",
        group_size=known.size if known else trace.manifest.world_size,
        kind=kind,
        count=sums.count,
        bytes=sums.bytes,
        seconds=sums.duration_ns / 1e9,
        exposed_s=sums.critical_ns / 1e9,
        algorithm_GBps=sums.bytes / sums.duration_ns if sums.duration_ns else None,
    )


def _table(
    trace: Trace, timeline: Timeline, step: Step, breakdown: Breakdown, name: Callable[[int, Signature], str]
) -> list[Operator]:
    entries = _device_entries(trace, step, Kind.WORK, Kind.COLLECTIVE)
    duration = (timeline.end_ns - timeline.start_ns)[entries].tolist()
    signatures = trace.columns["signature"][entries].tolist()
    critical = breakdown.critical_ns[entries].tolist()
    flops = [executed_flops(signature) for signature in trace.signatures]
    size = [int(getattr(signature, "bytes", 0)) for signature in trace.signatures]
    rows: dict[str, _Sums] = {}
    for entry, index, nanoseconds, spent in zip(entries.tolist(), signatures, duration, critical):
        row = rows.setdefault(name(entry, trace.signatures[index]), _Sums())
        row.count += 1
        row.duration_ns += nanoseconds
        row.critical_ns += spent
        row.flops += flops[index]
        row.bytes += size[index]
    step_ns = max(step.duration_ns, 1)
    operators = [
        Operator(
            key,
            sums.count,
            sums.duration_ns / 1e9,
            sums.critical_ns / 1e9,
            sums.critical_ns / step_ns,
            sums.flops,
            sums.bytes,
        )
        for key, sums in rows.items()
    ]
    return sorted(operators, key=lambda item: (-item.critical_s, -item.seconds, item.name))


def _device_entries(trace: Trace, step: Step, *kinds: Kind) -> np.ndarray:
    """Indices of the device work that the step issued."""
    start, stop, _ = step.entries.indices(len(trace))
    return np.flatnonzero(trace.mask(*kinds)[start:stop]) + start


def _family_name(signature: Signature) -> str:
    return signature.kind if isinstance(signature, CollectiveSignature) else family(signature)
