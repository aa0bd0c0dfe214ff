"""Stream priorities that a profile shows: kernels that overtook kernels of another stream, which had been ready before.

Profiles do not name the priority of a stream. Kernels of equal priority run in the order of their launches, so a kernel
that was launched later and ran first was more urgent. Both orders are known only with recorded waits between streams.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

_SAME_NS = 3_000  # between two kernels of which the second was ready before the first ended
_RATIO = 4  # a stream that overtakes another so many times as often as the reverse is more urgent


@dataclasses.dataclass(frozen=True)
class QueuedKernel:
    """A kernel with when its launch, its stream and its waits let it start, and when it did."""

    stream: int
    ready_ns: int
    start_ns: int
    end_ns: int


def stream_priorities(kernels: Sequence[QueuedKernel]) -> Mapping[int, int]:
    """Streams that are more urgent than others, with their priority: -1, as in CUDA.

    ``kernels``: of the streams' own work, not of collectives, in the order of their launches.
    """
    by_end = sorted(range(len(kernels)), key=lambda index: kernels[index].end_ns)
    ends_ns = [kernels[index].end_ns for index in by_end]
    counts: Counter[tuple[int, int]] = Counter()  # (stream that overtook, stream that was overtaken)
    for index, kernel in enumerate(kernels):
        if kernel.start_ns - kernel.ready_ns <= _SAME_NS:
            continue
        first = bisect.bisect_left(ends_ns, kernel.start_ns - _SAME_NS)
        last = bisect.bisect_right(ends_ns, kernel.start_ns)
        overtaking_streams = {
            kernels[other_index].stream
            for other_index in by_end[first:last]
            if other_index > index and kernels[other_index].start_ns >= kernel.ready_ns - _SAME_NS
        }
        counts.update((stream, kernel.stream) for stream in overtaking_streams - {kernel.stream})
    return {
        stream: -1
        for (stream, other_stream), count in sorted(counts.items())
        if count >= _RATIO * max(counts[other_stream, stream], 1)
    }
