"""Device time of a step by operator, by signature family and by collective."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

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
    """Device time by operator, longest first. Work without an operator is listed by its family."""
    names = [*trace.operators, *(f"({_family_name(signature)})" for signature in trace.signatures)]
    operator, signature = (trace.columns[name].astype(np.int64) for name in ("operator", "signature"))
    named = np.where(operator >= 0, operator, len(trace.operators) + signature)
    return _table(trace, timeline, step, breakdown, names, named)


def by_family(trace: Trace, timeline: Timeline, step: Step, breakdown: Breakdown) -> list[Operator]:
    """Device time by signature family, longest first; collectives by their kind."""
    names = [_family_name(signature) for signature in trace.signatures]
    return _table(trace, timeline, step, breakdown, names, trace.columns["signature"].astype(np.int64))


def by_collective(trace: Trace, timeline: Timeline, step: Step, breakdown: Breakdown) -> list[Collective]:
    """Communication of the step by process group and kind, most exposed first."""
    duration = timeline.end_ns - timeline.start_ns
    rows: dict[tuple[int, str], _Sums] = {}
    for part, times in step.spans:
        entries = _device_entries(trace, part, Kind.COLLECTIVE)
        for entry, index in zip(entries.tolist(), trace.columns["signature"][entries].tolist()):
            signature = trace.signatures[index]
            assert isinstance(signature, CollectiveSignature)  # trace.check guarantees this
            row = rows.setdefault((signature.group, signature.kind), _Sums())
            row.count += times
            row.bytes += times * signature.even.bytes
            row.duration_ns += times * int(duration[entry])
            if part == step.entries:  # the breakdown includes repetitions
                row.critical_ns += float(breakdown.critical_ns[entry] + breakdown.waiting_ns[entry])
    collectives = [_collective(trace, group, kind, row) for (group, kind), row in rows.items()]
    return sorted(collectives, key=lambda item: (-item.exposed_s, -item.seconds, item.group, item.kind))


@dataclasses.dataclass
class _Sums:
    """Sums over the entries of a row."""

    count: int = 0
    duration_ns: int = 0
    critical_ns: float = 0.0
    flops: int = 0
    bytes: int = 0


def _collective(trace: Trace, group: int, kind: str, sums: _Sums) -> Collective:
    groups = trace.manifest.groups
    process_group = groups[group] if 0 <= group < len(groups) else None
    return Collective(
        group=process_group.name if process_group else f"group {group}",
        group_size=process_group.size if process_group else trace.manifest.world_size,
        kind=kind,
        count=sums.count,
        bytes=sums.bytes,
        seconds=sums.duration_ns / 1e9,
        exposed_s=sums.critical_ns / 1e9,
        algorithm_GBps=sums.bytes / sums.duration_ns if sums.duration_ns else None,
    )


def _table(
    trace: Trace, timeline: Timeline, step: Step, breakdown: Breakdown, names: Sequence[str], named: np.ndarray
) -> list[Operator]:
    """Sums by name; ``named``: for each entry the index of its name."""
    numbers: dict[str, int] = {}
    number = np.array([numbers.setdefault(name, len(numbers)) for name in (*names, "")], np.int64)[named]
    sums = [_Sums() for _ in numbers]
    count = len(trace.signatures)
    for part, times in step.spans:
        entries = _device_entries(trace, part, Kind.WORK, Kind.COLLECTIVE)
        spent = (timeline.end_ns - timeline.start_ns)[entries]
        for row, nanoseconds in zip(sums, np.bincount(number[entries], spent, len(sums)).tolist()):
            row.duration_ns += times * int(nanoseconds)
        counts = np.bincount(number[entries] * count + trace.columns["signature"][entries].astype(np.int64))
        for pair in np.flatnonzero(counts).tolist():
            row, signature, met = sums[pair // count], trace.signatures[pair % count], times * int(counts[pair])
            row.count += met
            row.flops += met * executed_flops(signature)
            row.bytes += met * int(getattr(signature, "bytes", 0))
    entries = _device_entries(trace, step.entries, Kind.WORK, Kind.COLLECTIVE)
    for row, critical in zip(sums, np.bincount(number[entries], breakdown.critical_ns[entries], len(sums)).tolist()):
        row.critical_ns = critical
    rows = {name: row for name, row in zip(numbers, sums) if row.count}
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


def _device_entries(trace: Trace, part: slice, *kinds: Kind) -> np.ndarray:
    """Indices of the device work in a range of entries."""
    start, stop, _ = part.indices(len(trace))
    return np.flatnonzero(trace.mask(*kinds)[start:stop]) + start


def _family_name(signature: Signature) -> str:
    return signature.kind if isinstance(signature, CollectiveSignature) else family(signature)
