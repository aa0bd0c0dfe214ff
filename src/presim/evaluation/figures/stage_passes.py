"""The pipeline diagram: forward and backward passes of every micro-batch, for each simulated rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.analysis.time.breakdown import is_transfer
from presim.analysis.time.steps import find_steps
from presim.cost.price import PricedTrace
from presim.engine.timeline import Timeline
from presim.evaluation.evaluate_traces import Evaluation
from presim.result.step_figures import Pass, RankPasses, StagePasses
from presim.trace.collective import MESSAGES, Collective
from presim.trace.schema import Kind, Phase, Trace
from presim.trace.signatures import Attention, Gemm, GroupedGemm

Ints = NDArray[np.int64]
MOST_RANKS, MOST_PASSES = 64, 8000
PASSES = ("forward", "backward", "optimizer")  # recomputation belongs to the backward pass that needs it
_PRODUCTS = (Gemm, GroupedGemm, Attention)
_PASS_OF_PHASE = {Phase.FORWARD: 0, Phase.RECOMPUTE: 1, Phase.BACKWARD: 1, Phase.OPTIMIZER: 2}


def stage_passes(evaluation: Evaluation) -> StagePasses:
    """Passes by rank within the steady step, and idle shares of it.

    A pass is a run of one phase's kernels in issue order, up to the next message between stages or another phase. Its
    number counts passes of its kind on its rank: with virtual stages, each chunk of a micro-batch is one. No ranks
    where the job sends no messages.
    """
    first, last = find_steps(evaluation.priced.trace, evaluation.timeline).steady.span_ns
    rows: list[RankPasses] = []
    remaining_passes = MOST_PASSES
    for rank, priced in sorted(evaluation.ranks.items()):
        if _messages(priced).any() and len(rows) < MOST_RANKS:
            row = _row(rank, priced, evaluation.timelines[rank], (first, last), remaining_passes)
            rows.append(row)
            remaining_passes -= len(row.passes)
    counts = {tuple(sum(entry[2] == kind for entry in row.passes) for kind in range(2)) for row in rows}
    left_out = max(len(evaluation.ranks) - len(rows), 0) if rows else 0
    return StagePasses(first, last, PASSES, rows, left_out, len(counts) < 2)


def _messages(priced: PricedTrace) -> NDArray[np.bool_]:
    """Mask of entries that send or receive between stages."""
    trace = priced.trace
    is_message = [isinstance(signature, Collective) and signature.kind in MESSAGES for signature in trace.signatures]
    mask: NDArray[np.bool_] = trace.mask(Kind.COLLECTIVE) & np.array([*is_message, False])[trace.columns["signature"]]
    return mask


def _row(rank: int, priced: PricedTrace, timeline: Timeline, span_ns: tuple[int, int], most_passes: int) -> RankPasses:
    """The passes of a rank that run in the step."""
    first, last = span_ns
    trace = priced.trace
    is_compute = (
        trace.mask(Kind.WORK)
        & ~np.array([*(is_transfer(signature) for signature in trace.signatures), False])[trace.columns["signature"]]
    )
    in_step = (timeline.end_ns > first) & (timeline.start_ns < last)
    kind_of_phase = np.array([_PASS_OF_PHASE.get(Phase(phase), -1) for phase in range(max(Phase) + 1)], np.int64)
    entries = np.flatnonzero(is_compute & in_step & (kind_of_phase[trace.columns["phase"]] >= 0))
    if not len(entries):
        return RankPasses(rank, [], 1.0)
    kinds = kind_of_phase[trace.columns["phase"][entries]]
    messages_before = np.cumsum(_messages(priced))[entries]
    starts = np.flatnonzero(np.r_[True, (np.diff(kinds) != 0) | (np.diff(messages_before) != 0)])
    starts = starts[~_are_tails(trace, entries, kinds, starts)]
    begin = np.minimum.reduceat(timeline.start_ns[entries], starts)
    end = np.maximum.reduceat(timeline.end_ns[entries], starts)
    kind = kinds[starts]
    number = np.zeros(len(starts), np.int64)
    for value in range(len(PASSES)):
        number[kind == value] = np.arange(1, (kind == value).sum() + 1)
    passes: list[Pass] = list(zip(*(column[:most_passes].tolist() for column in (begin, end, kind, number))))
    return RankPasses(rank, passes, _idle(begin, end, first, last))


def _are_tails(trace: Trace, entries: Ints, kinds: Ints, starts: Ints) -> NDArray[np.bool_]:
    """[run] Whether a run belongs to the pass before it: gradients that are reduced or scaled behind the last message.

    Such runs have no product of matrices, while passes of their kind have some.
    """
    is_product = np.array([*(isinstance(signature, _PRODUCTS) for signature in trace.signatures), False])
    has_product = np.logical_or.reduceat(is_product[trace.columns["signature"][entries]], starts)
    kind = kinds[starts]
    kinds_with_products = np.unique(kind[has_product])
    are_tails: NDArray[np.bool_] = np.zeros(len(starts), np.bool_)
    are_tails[1:] = (np.diff(kind) == 0) & ~has_product[1:] & np.isin(kind[1:], kinds_with_products)
    return are_tails


def _idle(begin: Ints, end: Ints, first: int, last: int) -> float:
    """The share of the step in which no pass runs."""
    order = np.argsort(begin, kind="stable")
    reached = np.maximum.accumulate(np.r_[first, end[order]])
    busy = np.maximum(np.minimum(end[order], last) - np.maximum(np.maximum(begin[order], first), reached[:-1]), 0)
    return 1 - float(busy.sum()) / max(last - first, 1)
