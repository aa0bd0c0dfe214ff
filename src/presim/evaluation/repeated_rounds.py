"""How few micro-batches of a captured schedule answer for all of a step, and what proves it.

A pipeline in its steady state does the same with each round of micro-batches. So a step is simulated with a few rounds.
Where one of them takes as long as the next, further ones do so, too (`presim.analysis.time.steady_rounds`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.analysis.repeated_batches import Repeats
from presim.composition.replan.cycles import content_numbers
from presim.trace.schema import Kind, Phase, Trace

Ints = NDArray[np.int64]
_ROUNDS = 5  # of a micro-batch for each stage: two of warm-up, two that are alike, and the end
_FURTHER = 4  # micro-batches without a pipeline, beside those captured
_MAX_SHARE = 0.5  # of the micro-batches: with more than that there is little to gain


def fewer_micro_batches(micro_batches: int, stages: int, captured: int) -> int | None:
    """The number of micro-batches to try in place of all of a step; None: with so few there is little to gain.

    ``captured``: the fewest that there can be.
    """
    number = max(_ROUNDS * stages, captured) if stages > 1 else captured + _FURTHER
    return number if number <= _MAX_SHARE * micro_batches else None


def repeats_of(traces: Sequence[Trace], micro_batches: int, all_micro_batches: int, period: int) -> Repeats | None:
    """The micro-batches that steps of all ranks lack; None: nothing says where they begin.

    ``micro_batches``: of the traces' last step. ``period``: micro-batches after which the schedule repeats.
    """
    times, remainder = divmod(all_micro_batches - micro_batches, period)
    begins = {trace.manifest.rank: _begins(trace, micro_batches) for trace in traces}
    if remainder or not all(map(len, begins.values())):
        return None
    return Repeats(begins, {}, period, times, is_measured=True)


def _begins(trace: Trace, micro_batches: int) -> Ints:
    """Kernels with which micro-batches begin: a kernel of forward passes that comes as often, or a multiple of that.

    Chunks of layers that are alike run each kernel several times. Other steps count if they have as many micro-batches.
    """
    entries: Ints = np.flatnonzero(trace.mask(Kind.WORK) & (trace.columns["phase"] == Phase.FORWARD))
    contents = content_numbers(trace, entries)
    step_parts = [slice(*np.searchsorted(entries, (step.start, step.stop)).tolist()) for step in trace.steps()]
    last = contents[step_parts[-1]]
    counts = np.bincount(last, minlength=1)[last]
    counts[counts % micro_batches > 0] = len(entries) + 1
    if not len(last) or counts.min() > len(entries):
        return entries[:0]
    content = last[np.argmin(counts)]
    begins = [entries[part][contents[part] == content] for part in step_parts]
    return np.concatenate([step[:: counts.min() // micro_batches] for step in begins if len(step) == counts.min()])
