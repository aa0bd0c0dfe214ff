"""Summary of a trace in numbers, for the verb ``trace``."""

from __future__ import annotations

import msgspec
import numpy as np

from presim.trace.schema import Kind, Phase, Trace
from presim.trace.signatures import Collective, Signature, family


class SignatureCount(msgspec.Struct, frozen=True):
    """A signature and the number of its launches."""

    family: str
    count: int
    signature: Signature


class StreamCount(msgspec.Struct, frozen=True):
    """Counts for one stream."""

    stream: int
    priority: int  # CUDA's: lower is more urgent
    work: int
    collectives: int
    waits: int  # for events of other streams


class CollectiveCount(msgspec.Struct, frozen=True):
    """The collectives of one kind and type in one group."""

    group: str
    group_size: int
    kind: str
    dtype: str
    count: int
    bytes: int  # total, counted as in `Collective.bytes`


class Summary(msgspec.Struct, frozen=True):
    """One rank's trace in numbers."""

    rank: int
    world_size: int
    gpu: str
    exit: str
    entries: int
    steps: int
    host_ns: int  # total CPU time of the process
    kinds: dict[str, int]
    phases: dict[str, int]  # device work by phase of the program
    streams: tuple[StreamCount, ...]
    signatures: tuple[SignatureCount, ...]  # most frequent first
    collectives: tuple[CollectiveCount, ...]  # most bytes first
    unmodelled_calls: dict[str, int]
    notes: tuple[str, ...]


def summarize(trace: Trace) -> Summary:
    """Count everything; takes milliseconds for a trace of 100,000 entries."""
    kinds = np.bincount(trace.columns["kind"], minlength=len(Kind))
    on_device = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    phases = np.bincount(trace.columns["phase"][on_device], minlength=len(Phase))
    counts = np.bincount(trace.columns["signature"][on_device], minlength=len(trace.signatures))
    manifest = trace.manifest
    return Summary(
        rank=manifest.rank,
        world_size=manifest.world_size,
        gpu=manifest.gpu,
        exit=manifest.exit,
        entries=len(trace),
        steps=int(kinds[Kind.STEP]),
        host_ns=int(trace.columns["host_ns"].sum()),
        kinds={kind.name.lower(): int(kinds[kind]) for kind in Kind if kinds[kind]},
        phases={phase.name.lower(): int(phases[phase]) for phase in Phase if phases[phase]},
        streams=_streams(trace),
        signatures=_signatures(trace.signatures, counts.tolist()),
        collectives=_collectives(trace, counts.tolist()),
        unmodelled_calls=manifest.unmodelled_calls,
        notes=manifest.notes,
    )


def _streams(trace: Trace) -> tuple[StreamCount, ...]:
    stream = trace.columns["stream"]
    used = trace.mask(Kind.WORK, Kind.COLLECTIVE, Kind.STREAM_WAIT)
    size = int(stream.max()) + 1 if len(stream) else 0
    work, collectives, waits = (
        np.bincount(stream[trace.mask(kind)], minlength=size) for kind in (Kind.WORK, Kind.COLLECTIVE, Kind.STREAM_WAIT)
    )
    priorities = trace.manifest.stream_priorities
    return tuple(
        StreamCount(index, priorities.get(index, 0), int(work[index]), int(collectives[index]), int(waits[index]))
        for index in np.unique(stream[used]).tolist()
    )


def _signatures(signatures: tuple[Signature, ...], counts: list[int]) -> tuple[SignatureCount, ...]:
    signature_counts = [
        SignatureCount(family(signature), count, signature)
        for signature, count in zip(signatures, counts, strict=True)
        if count
    ]
    return tuple(sorted(signature_counts, key=lambda entry: -entry.count))


def _collectives(trace: Trace, counts: list[int]) -> tuple[CollectiveCount, ...]:
    groups = trace.manifest.groups
    totals: dict[tuple[int, str, str], tuple[int, int]] = {}
    for signature, count in zip(trace.signatures, counts, strict=True):
        if isinstance(signature, Collective) and count:
            key = (signature.group, signature.kind, signature.dtype)
            calls, size = totals.get(key, (0, 0))
            totals[key] = (calls + count, size + count * signature.bytes)
    collective_counts = []
    for (group, kind, dtype), (calls, size) in totals.items():
        is_known_group = 0 <= group < len(groups)
        name, members = (groups[group].name, groups[group].size) if is_known_group else (f"group {group}", 0)
        collective_counts.append(CollectiveCount(name, members, kind, dtype, calls, size))
    return tuple(sorted(collective_counts, key=lambda entry: (-entry.bytes, entry.group, entry.kind)))
