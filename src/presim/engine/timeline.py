"""The Timeline: start and end of every entry of one simulated rank."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Integer nanoseconds since the start of the simulation; one value per trace entry.

    ``issue_ns``: the host reaches the entry and has done the CPU work before it. ``start_ns``, ``end_ns``: of device
    work (`Kind.WORK`, `Kind.COLLECTIVE`), on the device; of a host synchronisation, from when the host begins to wait
    to when it goes on; of an event recording or a stream wait, the moment it takes effect on its stream (both equal);
    of anything else, ``issue_ns``. ``slowed_ns``: slowdown of device work by overlapping work. ``ports_ns``: the part
    of it caused by other groups on the same network ports.

    Invariants (held by property tests): ``issue_ns`` never decreases; ``issue_ns <= start_ns <= end_ns``; work of one
    stream does not overlap and keeps its order, except that sends and receives of one launch run side by side; nothing
    starts before what it waits for has ended.
    """

    issue_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    slowed_ns: NDArray[np.int64]
    ports_ns: NDArray[np.int64]

    def part(self, window: slice) -> Timeline:
        """Of some entries."""
        columns = (self.issue_ns, self.start_ns, self.end_ns, self.slowed_ns, self.ports_ns)
        return Timeline(*(column[window] for column in columns))

    @property
    def makespan_ns(self) -> int:
        """End of the last entry."""
        return int(self.end_ns.max()) if len(self.end_ns) else 0
