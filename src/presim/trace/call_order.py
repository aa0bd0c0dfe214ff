"""Checks that the ranks of a job call their collectives in orders that agree.

If all calls can be sorted so that no rank calls a later one before an earlier one, no rank waits for ever, whatever its
streams are. Otherwise ranks may wait for each other in a cycle: the simulation decides, which knows the streams.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.trace.rendezvous import number_rendezvous
from presim.trace.schema import Trace


def have_common_order(traces: Sequence[Trace]) -> bool:
    """Whether every rank can make all of its calls even if it waits at each; ``traces``: all ranks of the job."""
    rendezvous = number_rendezvous(traces)
    missing = rendezvous.members.tolist()
    launches = [_launches(trace, match) for trace, match in zip(traces, rendezvous.match, strict=True)]
    waiting: dict[int, list[int]] = {}  # rendezvous -> the ranks whose launch waits for it
    unmet = [0] * len(traces)  # by trace: rendezvous that its current launch waits for
    ready = list(range(len(traces)))
    unfinished = len(traces)
    while ready:
        index = ready.pop()
        launch = next(launches[index], None)
        if launch is None:
            unfinished -= 1
            continue
        unmet[index] = len(launch)
        for number in launch:
            waiting.setdefault(number, []).append(index)
            missing[number] -= 1
            if missing[number] == 0:
                for arrived in waiting.pop(number):
                    unmet[arrived] -= 1
                    if unmet[arrived] == 0:
                        ready.append(arrived)
    return unfinished == 0


def _launches(trace: Trace, match: NDArray[np.int64]) -> Iterator[list[int]]:
    """The rendezvous of each launch, in order: the calls of one launch group wait together."""
    entries = np.flatnonzero(match >= 0)
    serials = trace.columns["object"][entries].tolist()
    calls = enumerate(zip(serials, match[entries].tolist(), strict=True))
    for _, group in itertools.groupby(calls, lambda call: call[1][0] or -1 - call[0]):
        yield [number for _, (_, number) in group]
