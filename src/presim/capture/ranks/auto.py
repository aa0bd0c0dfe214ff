"""Find the distinct ranks: run every rank of a small world, and a sample of a larger one.

In a small world, every rank runs and those that did the same are merged afterwards. In a larger one, rank 0 runs beside
a first sample. If it exchanges messages with other ranks (pipeline stages), all of these run together: they form the
first replica, and samples are replicas. Once the groups of rank 0 are known, further samples cover their axes. While
samples find new kinds of ranks, more run between those that differ.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import msgspec

from presim.capture.processes.launch_config import LaunchConfig, Wave
from presim.capture.processes.rank_outcome import read_trace
from presim.capture.processes.wave import run_wave, show_output
from presim.capture.ranks.distinct_replicas import DistinctReplicas
from presim.capture.ranks.rank_grid import exchange_closure, find_layout, message_groups
from presim.capture.ranks.rank_selection import Checks
from presim.capture.ranks.replica_sampling import Sampling, difference_note, no_grid_note, rank_reads_of
from presim.system.interrupts import caught
from presim.trace import spans
from presim.trace.call_order import have_common_order
from presim.trace.coverage import RankCoverage
from presim.trace.job import Job
from presim.trace.schema import FAILED, Trace

SMALL_WORLD = 16  # ranks: all of them run
_INTERRUPTED = "Not all ranks were compared, because presim was interrupted; --check N limits how many run."
_EVERY_RANK = "every rank ran"
_ORDER_NOTE = (
    "No rank stands for others, because ranks call their collectives in orders that could make them wait in a cycle."
)

Progress = Callable[[str], None]


def capture_differing(
    steps: int | None, checks: Checks, setting: LaunchConfig, progress: Progress, *, keeps_finished: bool = False
) -> Job:
    """Run the ranks that may differ, and compare them. ``keeps_finished``: an interrupt ends only the comparison.

    Raises:
        CaptureError: too many ranks exchange messages with each other, or a rank cannot be run.
    """
    world = setting.cluster.world_size
    if checks.count is None and world <= SMALL_WORLD:
        return _all_ranks(steps, setting, progress)
    sampling = Sampling(steps, checks, setting, progress)
    sampling.run_first()
    with caught(keeps_finished) as stop:
        if checks.count is None and sampling.is_cheap():
            return _all_ranks(steps, setting, progress)
        sampling.run_more()
    distinct_ranks = sampling.distinct_ranks()
    if not stop.is_partial:
        return distinct_ranks
    return dataclasses.replace(distinct_ranks, notes=(_INTERRUPTED, *distinct_ranks.notes), partial=True)


def _all_ranks(steps: int | None, setting: LaunchConfig, progress: Progress) -> Job:
    world = tuple(range(setting.cluster.world_size))
    wave = Wave(world, steps, hidden=frozenset(world[1:]))
    doing = "running the script" if len(world) == 1 else f"running all {len(world)} ranks"
    with run_wave(wave, setting, functools.partial(progress, doing)) as captured:
        progress("reading the ranks' logs" if len(world) > 1 else "reading the log")
        differing_ranks = _merge_alike_ranks([read_trace(item, setting) for item in captured])
        for item in (captured[trace.manifest.rank] for trace in differing_ranks.traces):
            if item.rank and not item.failed:
                show_output(item, setting)
        coverage = msgspec.structs.replace(differing_ranks.coverage, rank_reads=rank_reads_of(captured))
    return dataclasses.replace(differing_ranks, coverage=coverage)


def _merge_alike_ranks(traces: Sequence[Trace]) -> Job:
    """Merge the traces of all ranks of a world, ascending, into the distinct ones."""
    ranks = exchange_closure([group for trace in traces for group in message_groups(trace)], len(traces))
    layout = find_layout(ranks, len(traces))
    coverage = RankCoverage(_EVERY_RANK, steps=len(traces[0].steps()))
    if layout is None:
        return Job(tuple(traces), {}, coverage, (no_grid_note(ranks),))
    if not any(trace.manifest.exit in FAILED for trace in traces) and not have_common_order(traces):
        return Job(tuple(traces), {}, coverage, (_ORDER_NOTE,))
    kinds = DistinctReplicas(layout)
    notes: list[str] = []
    for number in range(len(kinds.origins)):
        notes += difference_note(kinds, number, kinds.add(number, [traces[rank] for rank in kinds.ranks(number)]))
    coverage = msgspec.structs.replace(coverage, compared=spans.to_text(kinds.compared()))
    return Job(kinds.captured(), kinds.stands_for(), coverage, tuple(notes))
