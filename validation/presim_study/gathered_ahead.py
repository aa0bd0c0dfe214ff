"""A trace whose virtual stages gather their weights one ahead, from one where each gathers its own when it begins."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator

import numpy as np

from presim.trace.collective import Collective
from presim.trace.schema import Kind, Trace

_REPLICAS = "DATA_PARALLEL"  # in the names of Megatron's groups that hold the parts of a weight


def gathered_ahead(trace: Trace) -> Trace:
    """The same work, with the weights of a virtual stage asked for when the one before it is first run.

    That is ``align_param_gather`` of Megatron. Without it each stage of a pipeline waits for a gather whenever it comes
    to its next part, one after the other. Gathers that nothing waits for at once stay where they are.
    """
    place = np.arange(len(trace), dtype=np.float64)
    starts = [step.start for step in trace.steps()]
    before: tuple[int, int] | None = None  # the step of the gather before, and where it ends
    for first, end in _gathers(trace):
        step = bisect.bisect_right(starts, first)
        if before is not None and before[0] == step:
            place[first:end] = before[1] - 1 + np.linspace(0, 1, end - first + 2)[1:-1]
        before = (step, end)
    order = np.argsort(place, kind="stable")
    return dataclasses.replace(trace, columns={name: column[order] for name, column in trace.columns.items()})


def _gathers(trace: Trace) -> Iterator[tuple[int, int]]:
    """First entry and end of each gather of weights that is waited for at once.

    They are a recording and the wait for it, the collective, and recordings behind it on its stream.
    """
    kind, stream = (trace.columns[name].astype(np.int64) for name in ("kind", "stream"))
    serial = trace.columns["object"]
    numbers = [number for number, signature in enumerate(trace.signatures) if _is_of_weights(trace, signature)]
    for at in np.flatnonzero(trace.mask(Kind.COLLECTIVE) & np.isin(trace.columns["signature"], numbers)).tolist():
        first, end = at - 2, at + 1
        if first < 0 or kind[first] != Kind.EVENT_RECORD or kind[at - 1] != Kind.STREAM_WAIT:
            continue
        while end < len(kind) and kind[end] == Kind.EVENT_RECORD and stream[end] == stream[at]:
            end += 1
        if end < len(kind) and kind[end] == Kind.STREAM_WAIT and serial[end] in serial[at + 1 : end]:
            yield first, end


def _is_of_weights(trace: Trace, signature: object) -> bool:
    if not isinstance(signature, Collective) or signature.kind != "all_gather":
        return False
    return _REPLICAS in trace.manifest.groups[signature.group].name
