"""A trace whose modules were launched as CUDA graphs, from one where the host launched each of their kernels."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from presim.trace.schema import Kind, Trace

_FROM_A_GRAPH = 1  # of WORK, COLLECTIVE, EVENT_RECORD and STREAM_WAIT, see `presim.trace.schema.Kind`


def as_graphs(trace: Trace, modules: Sequence[str]) -> Trace:
    """The same work, with the host asking once for each stretch of these modules.

    ``modules``: names of submodules. What Python and launches took inside them, forward and backward, is gone; the
    first launch of a stretch stays, as that of the graph. The same trace where none are named.
    """
    if not modules:
        return trace
    words = re.compile(rf"(^|\.)({'|'.join(map(re.escape, modules))})(\.|$)")
    named = np.array([bool(words.search(scope)) for scope in trace.scopes] + [False])
    columns = dict(trace.columns)
    inside = named[columns["scope"].astype(np.int64)]
    launches = columns["kind"].astype(np.int64) <= Kind.STREAM_WAIT
    again = inside & np.concatenate(([False], inside[:-1]))
    columns["host_ns"] = np.where(again, 0, columns["host_ns"])
    columns["value"] = np.where(again & launches, _FROM_A_GRAPH, columns["value"])
    return dataclasses.replace(trace, columns=columns)
