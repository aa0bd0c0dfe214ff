"""What a timeline says of one piece of work, and of a range of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from presim.app.view.panes import Shown, tracks_of
from presim.app.view.tracks import KINDS, Track
from presim.errors import InputError
from presim.evaluation.figures.kernel_roofline import shape_of
from presim.report.slices import details_of
from presim.trace.collective import MESSAGES
from presim.trace.schema import Phase, Trace
from presim.trace.signatures import Collective, Signature

_MOST_NAMES = 40


def work(shown: Shown, rank: int, track_number: int, index: int) -> dict[str, Any]:
    """A piece of work by the number of its track and its own there: name, times, shape, module, price, arrows.

    Raises:
        InputError: there is no such work.
    """
    track = _track(shown, rank, track_number)
    if not 0 <= index < track.start.size:
        raise InputError(f"{track.name} of rank {rank} has {track.start.size:,} pieces of work, and no number {index}")
    priced, entry = shown.evaluation.ranks[rank], int(track.entry[index])
    trace = priced.trace
    signature = int(trace.columns["signature"][entry])
    shape = shape_of(trace.signatures[signature])
    return {
        "rank": rank,
        "track": track_number,
        "index": index,
        "stream": track.name,
        "name": track.labels[track.label[index]],
        "module": track.modules[track.module[index]] if track.module[index] >= 0 else "",
        "from": int(track.start[index]),
        "to": int(shown.evaluation.timelines[rank].end_ns[entry]),
        "details": {
            **({"shape": shape} if shape else {}),
            "phase": Phase(trace.columns["phase"][entry]).name.lower(),
            **details_of(trace, priced, signature),
            **_peer(trace, trace.signatures[signature]),
        },
        "arrows": shown.arrows.of(rank, track_number, index),
    }


def nearest(shown: Shown, rank: int, track_number: int, moment_ns: int) -> dict[str, Any]:
    """The piece of work of a track that ends first behind a moment, else its last.

    Raises:
        InputError: there is no such track, or it has no work.
    """
    track = _track(shown, rank, track_number)
    return work(shown, rank, track_number, min(int(np.searchsorted(track.end, moment_ns, "right")), track.end.size - 1))


def sums(shown: Shown, ranks: Sequence[int], from_ns: int, to_ns: int) -> dict[str, Any]:
    """Device time within a range: of each stream by kind of work, and by name over all of them.

    Raises:
        InputError: a rank was not simulated, or the range is empty.
    """
    if to_ns <= from_ns:
        raise InputError(f"the range ends at {to_ns} ns, before it begins at {from_ns} ns")
    rows = []
    spent_by_name: Counter[str] = Counter()
    count_by_name: Counter[str] = Counter()
    for rank in ranks:
        for track in tracks_of(shown, rank):
            indices, spent = track.within(from_ns, to_ns)
            by_kind = np.bincount(track.kind[indices], weights=spent, minlength=len(KINDS))
            rows.append({"rank": rank, "track": track.name, "count": int(indices.size), "ns": by_kind.tolist()})
            by_label = np.bincount(track.label[indices], weights=spent, minlength=len(track.labels))
            counts = np.bincount(track.label[indices], minlength=len(track.labels))
            for label in np.flatnonzero(counts).tolist():
                spent_by_name[track.labels[label]] += int(by_label[label])
                count_by_name[track.labels[label]] += int(counts[label])
    names = [{"name": name, "count": count_by_name[name], "ns": spent} for name, spent in spent_by_name.most_common()]
    return {
        "from": from_ns,
        "to": to_ns,
        "kinds": KINDS,
        "tracks": rows,
        "names": names[:_MOST_NAMES],
        "left_out": max(len(names) - _MOST_NAMES, 0),
    }


def _peer(trace: Trace, signature: Signature) -> dict[str, str]:
    """The other side of a message as a rank of the job, where its group's ranks are known."""
    if not isinstance(signature, Collective) or signature.kind not in MESSAGES:
        return {}
    ranks = trace.manifest.groups[signature.group].ranks if 0 <= signature.group < len(trace.manifest.groups) else ()
    return {"peer": f"rank {ranks[signature.peer]}"} if 0 <= signature.peer < len(ranks) else {}


def _track(shown: Shown, rank: int, number: int) -> Track:
    rank_tracks = tracks_of(shown, rank)
    if not 0 <= number < len(rank_tracks):
        raise InputError(f"rank {rank} has {len(rank_tracks)} streams, numbered from 0, and no stream {number}")
    return rank_tracks[number]
