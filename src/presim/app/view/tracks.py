"""Tracks of a timeline within a window: single boxes if there are few, else shares of each pixel."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.analysis.time.breakdown import is_transfer
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.report.slices import streams
from presim.trace.schema import Kind, Phase
from presim.trace.signatures import Collective, family

Ints = NDArray[np.int64]
KINDS = ("forward", "recompute", "backward", "optimizer", "other", "communication", "copy")
_OF_PHASE = {
    Phase.FORWARD: 0,
    Phase.RECOMPUTE: 1,
    Phase.BACKWARD: 2,
    Phase.OPTIMIZER: 3,
    Phase.OTHER: 4,
}
_COMMUNICATION, _COPY = 5, 6
MOST_BOXES = 3000  # of one track in one answer


@dataclasses.dataclass(frozen=True)
class Track:
    """The device work of one stream, ordered by start."""

    name: str
    start: Ints
    end: Ints
    kind: Ints  # index into `KINDS`
    label: Ints  # index into `labels`
    module: Ints  # index into `modules`, or -1
    labels: tuple[str, ...]
    modules: tuple[str, ...]
    entry: Ints  # of the trace
    busy: Ints  # [entry] time spent up to and with it
    busy_of: Ints  # [kind, entry] the same by kind

    def window(self, from_ns: int, to_ns: int, pixels: int) -> dict[str, Any]:
        """The content of a window as JSON: ``boxes``, the number of the first, or ``shares`` of each pixel by kind."""
        first = int(np.searchsorted(self.end, from_ns, "right"))
        last = int(np.searchsorted(self.start, to_ns, "left"))
        if last - first <= MOST_BOXES:
            return {"name": self.name, "first": first, "boxes": self._boxes(first, last)}
        edges = np.linspace(from_ns, to_ns, pixels + 1)
        percent = np.clip(np.rint(self.shares(edges) * 100), 0, 100).astype(np.int64)
        return {"name": self.name, "shares": percent.tolist()}

    def find(self, text: str, after_ns: int) -> tuple[int, int, int] | None:
        """Start, end and number from 1 of the first piece of work behind a moment whose name or module has a text."""
        hits = np.flatnonzero(self._has(text))
        index = int(np.searchsorted(self.start[hits], after_ns, "right"))
        if index == hits.size:
            return None
        return int(self.start[hits[index]]), int(self.end[hits[index]]), index + 1

    def count(self, text: str) -> int:
        """Pieces of work whose name or module has a text, in any case of letters."""
        return int(self._has(text).sum())

    def _has(self, text: str) -> NDArray[np.bool_]:
        lower_text = text.lower()
        by_label = np.array([lower_text in label.lower() for label in self.labels] or [False])
        by_module = np.array([*(lower_text in module.lower() for module in self.modules), False])  # -1: in none
        return np.asarray(by_label[self.label] | by_module[self.module])

    def _boxes(self, first: int, last: int) -> list[list[Any]]:
        rows = zip(
            *(column[first:last].tolist() for column in (self.start, self.end, self.kind, self.label, self.module))
        )
        return [
            [start, end, kind, self.labels[label], self.modules[module] if module >= 0 else ""]
            for start, end, kind, label, module in rows
        ]

    def within(self, from_ns: int, to_ns: int) -> tuple[Ints, Ints]:
        """Numbers of the work that runs in a range, and how long each does there, ns."""
        indices = np.flatnonzero((self.end > from_ns) & (self.start < to_ns))
        return indices, np.minimum(self.end[indices], to_ns) - np.maximum(self.start[indices], from_ns)

    def shares(self, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        """[interval, kind] share of each interval between ``edges`` in which a kind of work runs."""
        width = np.maximum(np.diff(edges), 1e-9)
        spent = [np.diff(self._spent(self.busy_of[kind], kind, edges)) / width for kind in range(len(KINDS))]
        return np.array(spent).T

    def _spent(self, busy: Ints, kind: int, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        """Time spent on a kind of work up to each moment, ns."""
        span_index = np.searchsorted(self.start, moments, "right") - 1
        inside = np.maximum(span_index, 0)
        running = np.minimum(moments, self.end[inside]) - self.start[inside]
        before = busy[inside] - np.where(self.kind[inside] == kind, self.end[inside] - self.start[inside], 0)
        spent = before + np.where(self.kind[inside] == kind, np.maximum(running, 0), 0)
        return np.where(span_index >= 0, spent, 0.0).astype(np.float64)


def tracks(priced: PricedTrace, timeline: Timeline) -> list[Track]:
    """The streams of one rank."""
    trace = priced.trace
    device = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    kind_of_signature = np.array([_signature_kind(signature) for signature in trace.signatures] or [-1], np.int64)
    phase = np.array([_OF_PHASE.get(Phase(value), 4) for value in range(max(Phase) + 1)], np.int64)
    names = tuple(
        signature.kind if isinstance(signature, Collective) else family(signature) for signature in trace.signatures
    )
    labels = (*trace.operators, *names)
    stream_tracks = []
    for stream, name in streams(trace, timeline):
        entries = np.flatnonzero(device & (trace.columns["stream"] == stream))
        entries = entries[np.argsort(timeline.start_ns[entries], kind="stable")]
        start, end = timeline.start_ns[entries], np.maximum.accumulate(timeline.end_ns[entries])
        signature_index = trace.columns["signature"][entries].astype(np.int64)
        operator = trace.columns["operator"][entries].astype(np.int64)
        signature_kind = kind_of_signature[signature_index]
        kind = np.where(signature_kind >= 0, signature_kind, phase[trace.columns["phase"][entries].astype(np.int64)])
        is_plain = (operator >= 0) & (signature_kind != _COMMUNICATION)
        label = np.where(is_plain, operator, len(trace.operators) + signature_index)
        spent = end - start
        by_kind = np.stack([np.cumsum(np.where(kind == kind_number, spent, 0)) for kind_number in range(len(KINDS))])
        module = trace.columns["scope"][entries].astype(np.int64)
        stream_tracks.append(
            Track(name, start, end, kind, label, module, labels, trace.scopes, entries, np.cumsum(spent), by_kind)
        )
    return stream_tracks


def _signature_kind(signature: Any) -> int:
    if isinstance(signature, Collective):
        return _COMMUNICATION
    return _COPY if is_transfer(signature) else -1
