"""Data of the panes as JSON. Each pane is a function of an evaluated job."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from presim.analysis.time.energy import power_over_time
from presim.analysis.time.steps import find_steps
from presim.app.view import result_panes
from presim.app.view.arrows import Arrows, arrows
from presim.app.view.tracks import KINDS, Track, tracks
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation
from presim.report import content
from presim.trace.schema import Kind
from presim.trace.signatures import Collective

MOST_RANKS = 32  # in one answer
_POWER_POINTS = 500


@dataclasses.dataclass(frozen=True)
class Shown:
    """A displayed job."""

    label: str
    evaluation: Evaluation

    @functools.cached_property
    def tracks(self) -> dict[int, list[Track]]:
        """Tracks by simulated rank, created at first use."""
        timelines = self.evaluation.timelines
        return {rank: tracks(priced, timelines[rank]) for rank, priced in sorted(self.evaluation.ranks.items())}

    @functools.cached_property
    def arrows(self) -> Arrows:
        """Arrows between the work of simulated ranks, found at first use."""
        evaluation = self.evaluation
        return arrows(evaluation.ranks, evaluation.timelines, self.tracks, evaluation.representatives)

    @functools.cached_property
    def span_ns(self) -> tuple[int, int]:
        """The steady step of the reported rank."""
        return find_steps(self.evaluation.priced.trace, self.evaluation.timeline).steady.span_ns


def summary(shown: Shown) -> dict[str, Any]:
    """Key figures, step time by kind, memory, limits, simulated ranks."""
    return result_panes.summary(shown.evaluation.result, shown.label, sorted(shown.evaluation.ranks))


def timeline(shown: Shown, ranks: list[int], from_ns: int | None, to_ns: int | None, pixels: int) -> dict[str, Any]:
    """Tracks of some ranks in a window; by default the steady step.

    Raises:
        InputError: a rank was not simulated, or the window ends before it starts.
    """
    begin, end = shown.span_ns
    first, last = begin if from_ns is None else from_ns, end if to_ns is None else to_ns
    if last <= first:
        raise InputError(f"the window ends at {last} ns, before it begins at {first} ns")
    return {
        "from": first,
        "to": last,
        "span": [begin, end],
        "kinds": KINDS,
        "ranks": [
            {"rank": rank, "tracks": [track.window(first, last, pixels) for track in tracks_of(shown, rank)]}
            for rank in ranks
        ],
    }


def find(shown: Shown, ranks: Sequence[int], text: str, after_ns: int) -> dict[str, Any]:
    """The first work behind a moment whose name or module has a text, and how much work has it; else the first of all.

    Raises:
        InputError: a rank was not simulated.
    """
    tracks_of_ranks = [(rank, track) for rank in ranks for track in tracks_of(shown, rank)]
    count = sum(track.count(text) for _, track in tracks_of_ranks)
    for moment_ns in (after_ns, -1):  # behind the last comes the first
        hits = [(hit, rank, track.name) for rank, track in tracks_of_ranks if (hit := track.find(text, moment_ns))]
        if hits:
            (start_ns, end_ns, _), rank, name = min(hits)
            return {"count": count, "rank": rank, "track": name, "from": start_ns, "to": end_ns}
    return {"count": 0, "rank": None, "track": "", "from": None, "to": None}


def tracks_of(shown: Shown, rank: int) -> list[Track]:
    """The streams of a rank.

    Raises:
        InputError: it was not simulated.
    """
    if rank not in shown.tracks:
        raise InputError(f"rank {rank} was not simulated; there are {sorted(shown.tracks)[:8]}")
    return shown.tracks[rank]


def memory(shown: Shown) -> dict[str, Any]:
    """Allocated and reserved memory over the step, and the contents of the peak."""
    return result_panes.memory(shown.evaluation.result)


def communication(shown: Shown) -> dict[str, Any]:
    """Collectives by group, and bytes of messages between ranks."""
    pairs: Counter[tuple[int, int]] = Counter()
    for rank, priced in shown.evaluation.ranks.items():
        trace = priced.trace
        entries = trace.columns["signature"][trace.mask(Kind.COLLECTIVE)].astype(np.int64)
        for index, times in zip(*(values.tolist() for values in np.unique(entries, return_counts=True))):
            signature = trace.signatures[index]
            if isinstance(signature, Collective) and signature.kind == "send":
                group = trace.manifest.groups[signature.group]
                if 0 <= signature.peer < len(group.ranks):
                    pairs[rank, group.ranks[signature.peer]] += times * signature.bytes
    messages = [(*pair, size) for pair, size in sorted(pairs.items())]
    return result_panes.communication(shown.evaluation.result, messages)


def power(shown: Shown) -> dict[str, Any]:
    """Power of the reported rank's GPU over the step, and its energy by class of work; empty if unknown."""
    energy = shown.evaluation.result.energy
    if energy is None:
        return {"energy": None, "time_s": [], "watts": []}
    step = find_steps(shown.evaluation.priced.trace, shown.evaluation.timeline).steady
    ends_ns, watts = power_over_time(
        shown.evaluation.priced, shown.evaluation.timeline, step, energy.limit_watts, _POWER_POINTS
    )
    return {
        "energy": msgspec.to_builtins(energy),
        "sentence": content.energy(shown.evaluation.result),
        "time_s": ((ends_ns - step.start_ns) / 1e9).tolist(),
        "watts": watts.tolist(),
    }
