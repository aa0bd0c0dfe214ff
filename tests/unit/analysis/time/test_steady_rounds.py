"""A round of micro-batches is repeated only where the next one does the same and takes as long on each rank."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from presim.analysis.time.steady_rounds import find_rounds
from presim.engine.timeline import Timeline
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Phase, Trace
from presim.trace.signatures import Elementwise

Ints = NDArray[np.int64]
ROUNDS = 5


def kernel(elements: int) -> Elementwise:
    return Elementwise(bytes_read=4 * elements, bytes_written=4, elements=elements, dtype="float32")


def rank(
    round_ns: list[int], host_ns: list[int] | None = None, sizes: list[int] | None = None
) -> tuple[Trace, Timeline]:
    """Two kernels a round, which begin as long after one another as ``round_ns`` says."""
    build = TraceBuilder(default_manifest())
    for size in sizes or [8] * len(round_ns):
        build.work(kernel(4), stream=0, phase=Phase.FORWARD)
        build.work(kernel(size), stream=0, phase=Phase.BACKWARD)
    build.step()
    trace = build.trace()
    issues, starts = _times(trace, host_ns or round_ns), _times(trace, round_ns)
    nothing = np.zeros(len(trace), np.int64)
    return trace, Timeline(issues, starts, starts + 1, nothing, nothing)


def _times(trace: Trace, round_ns: list[int]) -> Ints:
    begins = np.concatenate([[0], np.cumsum(round_ns)])[: len(round_ns)]
    times = np.stack([begins, begins + 1], axis=1).ravel()
    return np.concatenate([times, np.full(len(trace) - len(times), times[-1] + 1)])


def found(*ranks: tuple[Trace, Timeline]) -> tuple[int, slice] | None:
    traces, timelines = zip(*ranks)
    begins = [np.arange(0, 2 * ROUNDS, 2)] * len(ranks)
    stretches = find_rounds(traces, timelines, begins, 1)
    return None if stretches is None else (stretches[-1].duration_ns, stretches[-1].entries[0])


def test_the_latest_round_that_the_next_one_repeats_is_taken() -> None:
    assert found(rank([900_000, 1_000_000, 1_000_000, 1_000_200, 1_000_100])) == (1_000_000, slice(4, 6))


def test_the_slowest_rank_says_how_long_a_round_is() -> None:
    fast, slow = [1_000_000] * ROUNDS, [1_002_000] * ROUNDS
    assert found(rank(fast), rank(slow)) == (1_002_000, slice(4, 6))


@pytest.mark.parametrize(
    "ranks",
    [
        [rank([1_000_000, 1_010_000, 1_020_000, 1_030_000, 1_040_000])],  # rounds become longer
        [rank([1_000_000] * ROUNDS), rank([1_040_000] * ROUNDS)],  # a rank runs ahead of another for long
        [rank([1_000_000] * ROUNDS, host_ns=[1_100_000] * ROUNDS)],  # the device catches up with its host
        [rank([1_000_000] * ROUNDS, sizes=[8, 9, 10, 11, 12])],  # micro-batches differ
    ],
    ids=["growing", "unequal ranks", "slower host", "other work"],
)
def test_what_has_not_settled_is_not_repeated(ranks: list[tuple[Trace, Timeline]]) -> None:
    assert found(*ranks) is None


def test_a_step_that_begins_no_micro_batch_repeats_nothing() -> None:
    trace, timeline = rank([1_000_000] * ROUNDS)
    (stretch,) = find_rounds([trace], [timeline], [np.zeros(0, np.int64)], 1) or ()
    assert (stretch.duration_ns, stretch.entries) == (0, (slice(0, 0),))
