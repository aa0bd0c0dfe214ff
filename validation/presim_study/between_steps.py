"""A trace whose hosts take longer between steps, for a trainer that does more there than its recipe."""

from __future__ import annotations

import dataclasses

import numpy as np

from presim.trace.schema import Kind, Trace


def longer_between_steps(trace: Trace, ns: int) -> Trace:
    """The same trace with so much more host time, ns, at the end of each step.

    ``trace``: freed of what other processes cost, or what is added would be taken for the machine's.
    """
    host_ns = trace.columns["host_ns"].astype(np.int64)
    host_ns[trace.mask(Kind.STEP)] += ns
    return dataclasses.replace(trace, columns={**trace.columns, "host_ns": host_ns})
