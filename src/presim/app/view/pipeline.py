"""The pipeline diagram: forward and backward passes of every micro-batch, for each simulated rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.analysis.time.breakdown import is_transfer
from presim.app.view.panes import Shown
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.trace.collective import MESSAGES, Collective
from presim.trace.schema import Kind, Phase

Ints = NDArray[np.int64]
MOST_RANKS, MOST_PASSES = 64, 8000
PASSES = ("forward", "backward", "optimizer")  # recomputation belongs to the backward pass that needs it
_PASS_OF_PHASE = {Phase.FORWARD: 0, Phase.RECOMPUTE: 1, Phase.BACKWARD: 1, Phase.OPTIMIZER: 2}


def pipeline(shown: Shown) -> dict[str, Any]:
    """Passes by rank as [start ns, end ns, index into ``kinds``, its number from 1], and idle shares of the step.

    A pass is a run of one phase's kernels in issue order, up to the next message between stages or another phase. Its
    number counts passes of its kind on its rank: with virtual stages, each chunk of a micro-batch is one. No ranks
    where the job sends no messages.
    """
    first, last = shown.span_ns
    evaluation = shown.evaluation
    rows: list[dict[str, Any]] = []
    for rank, priced in sorted(evaluation.ranks.items()):
        if _messages(priced).any() and len(rows) < MOST_RANKS:
            rows.append(_row(rank, priced, evaluation.timelines[rank], first, last))
    drawn = 0
    for row in rows:
        row["passes"] = row["passes"][: max(MOST_PASSES - drawn, 0)]
        drawn += len(row["passes"])
    counts = {tuple(sum(entry[2] == kind for entry in row["passes"]) for kind in range(2)) for row in rows}
    return {
        "from": first,
        "to": last,
        "kinds": PASSES,
        "ranks": rows,
        "left_out": max(len(evaluation.ranks) - len(rows), 0) if rows else 0,
        "is_even": len(counts) < 2,
    }


def _messages(priced: PricedTrace) -> NDArray[np.bool_]:
    """Mask of entries that send or receive between stages."""
    trace = priced.trace
    is_message = [isinstance(signature, Collective) and signature.kind in MESSAGES for signature in trace.signatures]
    mask: NDArray[np.bool_] = trace.mask(Kind.COLLECTIVE) & np.array([*is_message, False])[trace.columns["signature"]]
    return mask


def _row(rank: int, priced: PricedTrace, timeline: Timeline, first: int, last: int) -> dict[str, Any]:
    """The passes of a rank that run in the step."""
    trace = priced.trace
    is_compute = (
        trace.mask(Kind.WORK)
        & ~np.array([*(is_transfer(signature) for signature in trace.signatures), False])[trace.columns["signature"]]
    )
    in_step = (timeline.end_ns > first) & (timeline.start_ns < last)
    kind_of_phase = np.array([_PASS_OF_PHASE.get(Phase(phase), -1) for phase in range(max(Phase) + 1)], np.int64)
    entries = np.flatnonzero(is_compute & in_step & (kind_of_phase[trace.columns["phase"]] >= 0))
    if not len(entries):
        return {"rank": rank, "passes": [], "idle": 1.0}
    kinds = kind_of_phase[trace.columns["phase"][entries]]
    messages_before = np.cumsum(_messages(priced))[entries]
    starts = np.flatnonzero(np.r_[True, (np.diff(kinds) != 0) | (np.diff(messages_before) != 0)])
    begin = np.minimum.reduceat(timeline.start_ns[entries], starts)
    end = np.maximum.reduceat(timeline.end_ns[entries], starts)
    kind = kinds[starts]
    number = np.zeros(len(starts), np.int64)
    for value in range(len(PASSES)):
        number[kind == value] = np.arange(1, (kind == value).sum() + 1)
    passes = np.stack([begin, end, kind, number], axis=1)
    return {"rank": rank, "passes": passes.tolist(), "idle": _idle(begin, end, first, last)}


def _idle(begin: Ints, end: Ints, first: int, last: int) -> float:
    """The share of the step in which no pass runs."""
    order = np.argsort(begin, kind="stable")
    reached = np.maximum.accumulate(np.r_[first, end[order]])
    busy = np.maximum(np.minimum(end[order], last) - np.maximum(np.maximum(begin[order], first), reached[:-1]), 0)
    return 1 - float(busy.sum()) / max(last - first, 1)
