"""Whether memory still grows from step to step when the capture ends.

A host that never waits for its device runs ahead of it by up to a stream's queue of launches. Blocks with
`record_stream` stay until the other stream has passed them, so each step that the host is ahead adds its own. Tensors
that a script keeps grow likewise. In both cases the peak of a few captured steps is not that of the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from presim.analysis.memory.blocks import reserved_bytes
from presim.trace.schema import Trace
from presim.units import gib

_LEAST_SHARE = 0.03  # of the peak, by which a step must grow to count
_STEADY = 0.5  # of the growth of the step before: less means that memory settles


def step_peaks(trace: Trace) -> list[int]:
    """The largest reserved memory of each step, bytes."""
    reserved = reserved_bytes(trace)
    return [int(reserved[step].max(initial=0)) for step in trace.steps()]


def growth_note(peak_bytes: Sequence[int]) -> list[str]:
    """A sentence if the peaks of the last three steps grow by nearly as much each; else none."""
    if len(peak_bytes) < 3:
        return []
    before, middle, last = peak_bytes[-3:]
    if last - middle < max(_LEAST_SHARE * last, _STEADY * (middle - before)) or middle <= before:
        return []
    return [
        f"Reserved memory still grows from step to step ({gib(before)}, {gib(middle)}, {gib(last)}): the host runs "
        f"ahead of blocks that another stream uses, or the script keeps tensors. Later steps need more; capture them "
        f"with --steps {4 * len(peak_bytes)}."
    ]
