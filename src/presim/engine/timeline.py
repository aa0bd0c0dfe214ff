"""The Timeline: start and end of every entry of one simulated rank."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Integer nanoseconds since the start of the simulation; one value per trace entry.

    ``issue_ns``: when the host reaches the entry, after the CPU work before it.
    ``start_ns``, ``end_ns``: depend on the kind of entry:

    - device work (`Kind.WORK`, `Kind.COLLECTIVE`): start and end on the device;
    - host synchronisation: when the host begins to wait and when it continues;
    - a request to a data loader's worker: when the worker begins and ends to prepare the batch;
    - event recording or stream wait: when it takes effect on its stream (both equal);
    - all others: ``issue_ns``.

    ``slowed_ns``: slowdown of device work by overlapping work.
    ``ports_ns``: the part of ``slowed_ns`` that is caused by other groups on the same network ports.

    Invariants (property tests check them): ``issue_ns`` never decreases; ``issue_ns <= start_ns <= end_ns``; work of
    one stream does not overlap and keeps its order, except for concurrent sends and receives of one launch; nothing
    starts before the end of what it waits for.
    """

    issue_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    slowed_ns: NDArray[np.int64]
    ports_ns: NDArray[np.int64]

    def part(self, window: slice) -> Timeline:
        """The timeline of a range of entries."""
        columns = (self.issue_ns, self.start_ns, self.end_ns, self.slowed_ns, self.ports_ns)
        return Timeline(*(column[window] for column in columns))

    @property
    def makespan_ns(self) -> int:
        """End of the last entry."""
        return int(self.end_ns.max()) if len(self.end_ns) else 0
