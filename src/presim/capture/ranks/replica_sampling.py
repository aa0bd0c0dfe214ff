"""Sample the replicas of a large world: which ranks run next, for how long, and what the ones that ran show."""

from __future__ import annotations

import functools
import linecache
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from presim.capture.processes.launch_config import LaunchConfig, Wave
from presim.capture.processes.rank_outcome import PEERS, CapturedRank, read_trace
from presim.capture.processes.wave import run_wave
from presim.capture.ranks.distinct_replicas import DistinctReplicas
from presim.capture.ranks.rank_grid import ReplicatedWorld, exchange_closure, find_layout
from presim.capture.ranks.rank_sample import (
    axis_sample,
    corner_sample,
    diagonal_sample,
    first_sample,
    gap_sample,
    is_line,
)
from presim.capture.ranks.rank_selection import Checks
from presim.capture.ranks.zero_hint import singles_out_rank_0
from presim.capture.reading.gpu_sharing import absent_neighbours_note
from presim.errors import CaptureError
from presim.trace import spans
from presim.trace.coverage import RankCoverage, tells_only_rank_0, unconfined
from presim.trace.job import Job
from presim.trace.schema import FAILED, Trace

_CHEAP_WORLD, _CHEAP_ENTRIES = (
    64,
    300_000,
)  # ranks, and entries of all traces together: up to these limits all ranks run
_MAX_SCOUTS = 6  # how often the first replica may be extended by new peers
_MAX_REPLICA_RANKS = 64  # ranks of a replica
_MAX_PROCESSES = 16  # concurrent processes, unless two replicas need more
_DIAGONAL_RANKS = _MAX_PROCESSES - 2  # they run at once with the second and the middle rank of a line
_PER_GAP = 1  # replicas to run at once between two that differ
_MAX_LISTED = 8  # ranks listed in a sentence
_LAST = "the last rank, at the end of every axis, ran beside rank 0"
_RANK_NOT_READ = "not seen: a use of the rank outside PyTorch other than to choose a device or print"
_ZERO_ONLY = "the program reads its rank only to tell rank 0 from others, to choose a device or to print"
_AXES = "the second, the last and a middle rank along each axis of the process groups"
_DIAGONAL = "ranks of different nodes, with every index within a node, because the program reads its rank"
_CORNERS = "the corners of that grid"
_SECOND = "the second ran, too"
_BETWEEN = "ranks between those that differ"

Progress = Callable[[str], None]


class Sampling:
    """The replicas of a large world that have run, and the choice of the next ones."""

    def __init__(self, steps: int | None, checks: Checks, setting: LaunchConfig, progress: Progress) -> None:
        self.steps, self.checks, self.setting, self.progress = steps, checks, setting, progress
        self.world = setting.cluster.world_size
        self.kinds = DistinctReplicas(ReplicatedWorld(self.world))
        self.is_regular = True  # whether the ranks that exchange messages form a grid, so that they have replicas
        self.reads: tuple[str, ...] = ()
        self.failed: dict[int, None] = {}  # numbers of sampled replicas that failed
        self.notes: list[str] = []
        self.rules: dict[str, None] = {}
        self._found_new = False  # whether a sample outside of gaps was of a new kind
        self._end_s = 0.0  # monotonic clock: no further wave starts after it
        self._cpu_s = 0.0  # CPU time of the slowest rank that ran

    def run_first(self) -> None:
        """Run rank 0 with all ranks that exchange messages with it, and the first sample beside them."""
        groups: list[tuple[int, ...]] = []
        while True:
            ranks = exchange_closure(groups, self.world)
            layout = self._layout(ranks)
            self.kinds, self.is_regular = DistinctReplicas(layout or ReplicatedWorld(self.world)), layout is not None
            numbers = self._next_replicas([self._first_candidates()]) if layout else []
            doing = "running the script" if len(ranks) == 1 else f"running {len(ranks)} ranks together"
            wave = self._wave(ranks, numbers, is_scout=len(groups) < _MAX_SCOUTS)
            with run_wave(wave, self.setting, functools.partial(self.progress, doing)) as captured:
                if peers := [item.outcome.peers for item in captured if item.outcome.exit == PEERS]:
                    groups += peers
                    self.rules.clear()
                    continue
                self._end_s = time.monotonic() + self.checks.seconds
                self.progress("reading the ranks' logs" if len(captured) > 1 else "reading the log")
                self.reads = rank_reads_of(captured)
                self._cpu_s = max(item.outcome.cpu_s for item in captured)
                self.kinds.add(0, [read_trace(item, self.setting) for item in captured[: len(ranks)]])
                self._compare_samples(numbers, captured)
            self.notes += [] if layout else [no_grid_note(ranks)]
            return

    def _first_candidates(self) -> dict[str, list[int]]:
        """The last rank, and rank 1 if the script's text lets rank 0 alone do something."""
        program = self.setting.program
        candidates = {_LAST: first_sample(self.world)}
        if not program.module and singles_out_rank_0("".join(linecache.getlines(program.script)), program.args):
            candidates[_SECOND] = [1]
        return candidates

    def _layout(self, ranks: tuple[int, ...]) -> ReplicatedWorld | None:
        if len(ranks) > _MAX_REPLICA_RANKS:
            raise CaptureError(
                f"{len(ranks)} ranks exchange messages with each other, at most {_MAX_REPLICA_RANKS} can run together; "
                "name the ranks to capture with --ranks"
            )
        return find_layout(ranks, self.world)

    def _wave(self, first: tuple[int, ...], numbers: Sequence[int], *, is_scout: bool = False) -> Wave:
        """The first replica and some samples. Samples may fail, and their output is hidden."""
        sampled = self._ranks(numbers)
        repeated_ranks = first if self.kinds.kind else ()  # the first replica has run before
        optional = frozenset((*repeated_ranks, *sampled))
        stands_for = self.kinds.layout.stands_for(0, sampled) if self.is_regular else {}
        return Wave(
            (*first, *sampled), self.steps, optional, optional, stands_for, is_scout=is_scout and self.world > 1
        )

    def _compare_samples(self, numbers: Sequence[int], captured: Sequence[CapturedRank]) -> None:
        """Compare the replicas that ran with the known kinds."""
        by_rank = {item.rank: item for item in captured}
        for number in numbers:
            items = [by_rank[rank] for rank in self.kinds.ranks(number)]
            if failures := [item for item in items if item.failed]:
                self.failed[number] = None
                self.notes += [] if self.has_failed else [_failure_note(failures[0])]
                continue
            traces = [read_trace(item, self.setting) for item in items]
            self.notes += self._absent_neighbours_notes(traces, by_rank)
            different = self.kinds.add(number, traces)
            self._found_new |= bool(different)
            self.notes += difference_note(self.kinds, number, different)

    def _absent_neighbours_notes(self, traces: Sequence[Trace], running: Collection[int]) -> list[str]:
        size, capacity_bytes = self.setting.cluster.gpus_per_node, self.setting.cluster.gpu.memory_bytes
        notes: list[str] = []
        for manifest in (trace.manifest for trace in traces):
            node = range(manifest.rank // size * size, min(manifest.rank // size * size + size, self.world))
            absent = [rank for rank in node if rank not in running]
            notes += absent_neighbours_note(manifest.gpus, manifest.rank, absent, capacity_bytes)
        return notes

    @property
    def has_failed(self) -> bool:
        """Whether a rank of the first replica failed."""
        return any(trace.manifest.exit in FAILED for trace in self.kinds.traces[0])

    def is_cheap(self) -> bool:
        """Whether running all ranks takes little time."""
        entries = max(len(trace) for trace in self.kinds.traces[0]) * self.world
        return self.world <= _CHEAP_WORLD and entries <= _CHEAP_ENTRIES and not self.has_failed

    def run_more(self) -> None:
        """Run samples until all candidates have run or the time is up."""
        if not self.is_regular or self.has_failed:
            return
        while numbers := self._next_replicas(self._candidates()):
            room = self._replicas_in_time()
            ranks, late_ranks = self._ranks(numbers[:room]), self._ranks(numbers[room:])
            if late_ranks:
                self.notes.append(
                    f"Not compared: {_list_ranks(late_ranks)}, because comparing them would take longer than "
                    f"{self.checks.seconds:g} s (--check-time)."
                )
            if not ranks:
                return
            self.progress(f"comparing {_list_ranks(ranks)}")
            try:
                with run_wave(self._wave(self.kinds.ranks(0), numbers[:room]), self.setting) as captured:
                    self._compare_samples(numbers[:room], captured)
            except CaptureError as error:
                self.failed.update(dict.fromkeys(numbers[:room]))
                self.notes.append(f"Not compared: {_list_ranks(ranks)}, because running them failed: {error}.")
            if late_ranks:
                return

    def _ranks(self, numbers: Sequence[int]) -> list[int]:
        """The ranks of some replicas."""
        return [rank for number in numbers for rank in self.kinds.ranks(number)]

    def _replicas_in_time(self) -> int:
        """How many replicas can run beside the first within what is left of the time to compare.

        A program that reads its rank may do something else on any of them. All of its sample runs until the time is up.
        """
        left_s = self._end_s - time.monotonic()
        if left_s <= 0 or self._is_wide():
            return _MAX_PROCESSES if left_s > 0 else 0
        processes = int(left_s * len(os.sched_getaffinity(0)) / max(self._cpu_s, 0.01))
        return max(processes // len(self.kinds.layout.offsets) - 1, 0)

    def _is_wide(self) -> bool:
        """Whether ranks of all kinds of places are compared: the program reads its rank, or the user names a number."""
        return bool(self.checks.count) or (bool(unconfined(self.reads)) and not tells_only_rank_0(self.reads))

    def _candidates(self) -> list[dict[str, list[int]]]:
        """Ranks to sample by the rule that selects them; those of one dictionary run together."""
        groups = [group.ranks for group in self.kinds.traces[0][0].manifest.groups]
        is_zero_told = tells_only_rank_0(self.reads)
        is_wide = self._is_wide()
        wide: dict[str, list[int]] = {}
        if is_wide or not is_line(groups, self.world):
            wide[_AXES] = axis_sample(groups, self.world)
        if is_wide:
            node = tuple(range(self.setting.cluster.gpus_per_node))
            wide[_DIAGONAL] = diagonal_sample([*groups, node], self.world, self._diagonal_ranks())
            wide[_CORNERS] = corner_sample(groups, self.world)
        elif self.checks.count is None:
            self.rules[_ZERO_ONLY if is_zero_told else _RANK_NOT_READ] = None
            if (
                is_zero_told and self._found_new and len(self.kinds.origins) > 1
            ):  # does the last differ for that reason?
                wide[_SECOND] = [int(self.kinds.origins[1])]
        between: list[int] = []
        if self.checks.count:
            between = gap_sample(0, len(self.kinds.origins), self.checks.count)
        elif self._found_new:
            between = [number for gap in self.kinds.gaps() for number in gap_sample(*gap, _PER_GAP)]
        return [wide, {_BETWEEN: [int(self.kinds.origins[number]) for number in between]}]

    def _diagonal_ranks(self) -> int:
        """Ranks of the diagonal: as many replicas as run at once, and at least one for each GPU of a node."""
        size = len(self.kinds.layout.offsets)
        return max(_DIAGONAL_RANKS // size, min(self.setting.cluster.gpus_per_node, _DIAGONAL_RANKS))

    def _next_replicas(self, choices: Sequence[Mapping[str, list[int]]]) -> list[int]:
        """The replicas of the first candidates of which some are left to run, limited to what may run at once.

        Each wave repeats the first replica, so few large waves take less time than many small ones.
        """
        kinds, size = self.kinds, len(self.kinds.layout.offsets)
        room = max(1, _MAX_PROCESSES // size - 1)
        if self.checks.count is not None:
            compared = len(kinds.kind) + len(self.failed) - 1
            room = min(room, (self.checks.count + size - 1) // size - max(compared, 0))
        for candidates in choices:
            rule_by_replica: dict[int, str] = {}  # number of a replica -> the rule that selects it
            for rule, ranks in candidates.items():
                for number in map(kinds.layout.number_of, ranks):
                    if number and number not in kinds.kind and number not in self.failed:
                        rule_by_replica.setdefault(number, rule)
            if rule_by_replica and room > 0:
                replicas = list(rule_by_replica)[:room]
                self.rules |= dict.fromkeys(rule_by_replica[number] for number in replicas)
                self._found_new &= _BETWEEN not in candidates
                return replicas
        return []

    def distinct_ranks(self) -> Job:
        """The final result."""
        traces, kinds = self.kinds.captured(), self.kinds
        coverage = RankCoverage(
            rule="; ".join(sorted(self.rules, key=_SECOND.__eq__))
            or "rank 0 ran, with the ranks that it exchanges messages with",
            compared=spans.to_text(kinds.compared()),
            steps=len(traces[0].steps()),
            failed=spans.to_text(sorted(rank for number in self.failed for rank in kinds.ranks(number))),
            undecided=spans.to_text(kinds.undecided()),
            rank_reads=self.reads,
        )
        is_known = self.is_regular and not self.has_failed
        return Job(traces, kinds.stands_for() if is_known else {}, coverage, tuple(self.notes))


def difference_note(kinds: DistinctReplicas, number: int, different: str) -> list[str]:
    """The note on a replica that differs from the first; none if its kind is known."""
    return [f"{_list_ranks(kinds.ranks(number)).capitalize()} captured, too: {different}."] if different else []


def _failure_note(item: CapturedRank) -> str:
    return f"Rank {item.rank} failed where rank 0 did not, and is not in the prediction: {item.outcome.error}."


def no_grid_note(ranks: Sequence[int]) -> str:
    """The note on ranks that exchange messages and form no grid."""
    return f"No rank stands for others, because those that exchange messages, {_list_ranks(ranks)}, form no grid."


def _list_ranks(ranks: Sequence[int]) -> str:
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    is_range = ordered == list(range(ordered[0], ordered[-1] + 1)) and len(ordered) > 2
    shown = f"{ordered[0]} to {ordered[-1]}" if is_range else ", ".join(map(str, ordered[:_MAX_LISTED]))
    return f"ranks {shown}{', …' if not is_range and len(ordered) > _MAX_LISTED else ''}"


def rank_reads_of(captured: Sequence[CapturedRank]) -> tuple[str, ...]:
    """The places where any of these ranks read its rank."""
    return tuple(dict.fromkeys(line for item in captured for line in item.outcome.rank_reads))
