"""Arrows of a timeline: from work to the work that waited for it, and from a message's send to its receive."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from presim.app.view.tracks import Track
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.report.flows import find_arrows
from presim.trace.rendezvous import number_rendezvous
from presim.trace.representatives import Representatives
from presim.trace.schema import Trace
from presim.trace.signatures import Collective

Ints: TypeAlias = NDArray[np.int64]
MOST_ARROWS = 400  # in one answer; more would hide the work
_KINDS = ("dependency", "message")
_RANK, _TRACK, _INDEX, _MOMENT = range(4)  # columns of an end


@dataclasses.dataclass(frozen=True)
class Arrows:
    """Arrows of all simulated ranks. An end: rank, number of the track, number of the work there, moment in ns."""

    sources: Ints  # [arrow, column]
    targets: Ints
    is_message: NDArray[np.bool_]

    def window(self, ranks: Collection[int], from_ns: int, to_ns: int) -> dict[str, Any]:
        """How many arrows between some ranks a window has, and if they are not too many, the arrows."""
        is_shown = np.isin(self.sources[:, _RANK], list(ranks)) & np.isin(self.targets[:, _RANK], list(ranks))
        overlaps = (self.targets[:, _MOMENT] >= from_ns) & (self.sources[:, _MOMENT] <= to_ns)
        hits = np.flatnonzero(is_shown & overlaps)
        return {"count": int(hits.size), "arrows": self._rows(hits) if hits.size <= MOST_ARROWS else []}

    def of(self, rank: int, track: int, index: int) -> list[dict[str, Any]]:
        """The arrows that begin or end at a piece of work."""
        work = np.array([rank, track, index])
        begins, finishes = (np.all(side[:, :_MOMENT] == work, axis=1) for side in (self.sources, self.targets))
        return self._rows(np.flatnonzero(begins | finishes))

    def _rows(self, hits: Ints) -> list[dict[str, Any]]:
        columns = (self.sources[hits].tolist(), self.targets[hits].tolist(), self.is_message[hits].tolist())
        return [
            {"kind": _KINDS[is_message], "from": source, "to": target} for source, target, is_message in zip(*columns)
        ]


def arrows(
    ranks: Mapping[int, PricedTrace],
    timelines: Mapping[int, Timeline],
    tracks: Mapping[int, Sequence[Track]],
    representatives: Representatives,
) -> Arrows:
    """The arrows between the work of simulated ranks; a message whose other side was not simulated has none."""
    traces = [ranks[rank].trace for rank in sorted(tracks)]
    places = {rank: _places(ranks[rank].trace, tracks[rank]) for rank in tracks}
    pairs = [
        ((rank, source), (rank, target))
        for rank in sorted(tracks)
        for source, target in find_arrows(ranks[rank].trace, timelines[rank])
    ]
    messages = _messages(traces, representatives)

    def ends(side: int, use_start: Sequence[bool]) -> Ints:
        rows = []
        for arrow, is_start in zip([*pairs, *messages], use_start, strict=True):
            rank, entry = arrow[side]
            moments = timelines[rank].start_ns if is_start else timelines[rank].end_ns
            rows.append((rank, *places[rank][entry], moments[entry]))
        return np.array(rows, np.int64).reshape(-1, 4)

    is_message = [False] * len(pairs) + [True] * len(messages)
    # A dependency leads from an end to a start; a message from where its send starts to where its receive ends.
    return Arrows(ends(0, is_message), ends(1, [not value for value in is_message]), np.array(is_message, np.bool_))


def _places(trace: Trace, tracks: Sequence[Track]) -> Ints:
    """[entry] the number of its track, and its own there."""
    places = np.full((len(trace.columns["kind"]), 2), -1, np.int64)
    for number, track in enumerate(tracks):
        places[track.entry, 0] = number
        places[track.entry, 1] = np.arange(track.entry.size)
    return places


def _messages(
    traces: Sequence[Trace], representatives: Representatives
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Rank and entry of each send, and of its receive; of an exchange, both ways."""
    rendezvous = number_rendezvous(traces, representatives)
    senders: dict[int, list[tuple[int, int]]] = {}  # by rendezvous
    receivers: dict[int, list[tuple[int, int]]] = {}
    for trace, match in zip(traces, rendezvous.match, strict=True):
        kinds = [signature.kind if isinstance(signature, Collective) else "" for signature in trace.signatures]
        for entry in np.flatnonzero(match >= 0).tolist():
            kind = kinds[trace.columns["signature"][entry]]
            if kind in ("send", "send_recv"):
                senders.setdefault(int(match[entry]), []).append((trace.manifest.rank, entry))
            if kind in ("recv", "send_recv"):
                receivers.setdefault(int(match[entry]), []).append((trace.manifest.rank, entry))
    return [
        (sender, receiver)
        for number, sides in sorted(senders.items())
        for sender in sides
        for receiver in receivers.get(number, ())
        if sender[0] != receiver[0]
    ]
