"""Finds out which ranks differ, captures one of each, and looks at a sample of the others.

Rank 0 runs first. Where it exchanges with other ranks (a pipeline's stages), all that exchange run together instead:
the first replica. Other replicas are taken to do the same, and some of them are run for one step, to see. One that
does something else is captured itself; where the change lies between two samples is looked for by halving.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

from presim.capture.ranks.captured import PEERS, Captured, read_trace
from presim.capture.ranks.compare import describe_difference, fingerprint, spread
from presim.capture.ranks.layout import Layout, find_layout, together
from presim.capture.ranks.setting import Setting, Wave
from presim.capture.ranks.wave import run_wave
from presim.errors import CaptureError
from presim.trace.schema import Trace

_SCOUTS = 6  # times that rank 0 may meet new peers
_MOST_TOGETHER = 64  # ranks of a replica
_HALVINGS = 6  # replicas that are run to find where others begin to differ

Progress = Callable[[str], None]
Answer = tuple[tuple[Trace, ...], Mapping[int, Sequence[int]], tuple[int, ...], tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class _Replica:
    """The ranks of one replica, run for some steps."""

    traces: tuple[Trace, ...]
    failures: tuple[str, ...] = ()  # of the ranks that failed


def capture_differing(steps: int, checks: int | None, setting: Setting, progress: Progress) -> Answer:
    """Traces of the ranks that differ, whom each stands for, which others were looked at, and what to know."""
    layout, first, early, notes = _first_replica(steps, checks != 0, setting, progress)
    job = _Job(layout, first, steps, setting, progress, notes)
    if not first.failures and checks != 0:
        job.check(checks, early)
    return job.answer()


def _first_replica(
    steps: int, checked: bool, setting: Setting, progress: Progress
) -> tuple[Layout, _Replica, _Replica | None, list[str]]:
    """Run rank 0, and again with whom it cannot do without; beside it, for one step, the last replica of the world.

    These exchange with each other: what rank 0 broadcasts, the last one gets.
    """
    world = setting.cluster.world_size
    groups: list[tuple[int, ...]] = []
    while True:
        ranks = together(groups)
        if len(ranks) > _MOST_TOGETHER or ranks[-1] >= world:
            raise CaptureError(
                f"{len(ranks)} ranks exchange with each other, which are too many to run at once: "
                "name those to capture with --ranks"
            )
        layout = find_layout(ranks, world)
        last = layout.replica(int(layout.origins()[-1])) if layout and checked and len(ranks) < world else ()
        wave = Wave(
            (*ranks, *last),
            steps,
            brief=frozenset(last),
            hidden=frozenset(last),
            stands_for=layout.stands_for(0, last) if layout else {},
            is_scout=len(groups) < _SCOUTS and world > 1,
        )
        doing = "running the script" if len(ranks) == 1 else f"running {len(ranks)} ranks together"
        with run_wave(wave, setting, functools.partial(progress, doing)) as captured:
            if peers := [item.outcome.peers for item in captured if item.outcome.exit == PEERS]:
                groups += peers
                continue
            progress("reading what they asked for" if len(ranks) > 1 else "reading what it asked for")
            first = _read(captured[: len(ranks)], setting)
            early = _read(captured[len(ranks) :], setting) if last else None
        notes = [] if layout else [f"No rank stands for others: those that exchange, {ranks}, lie irregularly."]
        return layout or Layout(world), first, early, notes


def _read(captured: Sequence[Captured], setting: Setting) -> _Replica:
    failures = tuple(f"rank {item.rank}: {item.outcome.error}" for item in captured if item.failed)
    return _Replica(tuple(read_trace(item, setting) for item in captured), failures)


def _try(wave: Wave, setting: Setting, ranks: Collection[int]) -> _Replica:
    """Run a wave for the sake of some of its ranks; if it does not end, that is a failure like others."""
    try:
        with run_wave(wave, setting) as captured:
            return _read([item for item in captured if item.rank in ranks], setting)
    except CaptureError as error:
        return _Replica((), (str(error),))


class _Job:
    """The replicas of a world by number, those that have been run, and what follows."""

    def __init__(
        self, layout: Layout, first: _Replica, steps: int, setting: Setting, progress: Progress, notes: list[str]
    ) -> None:
        self.layout = layout
        self.origins = layout.origins()
        self.steps = steps
        self.setting = setting
        self.progress = progress
        self.notes = notes
        self.captured = {0: first}
        self.like = {0: 0}  # number of a replica that was run -> of the captured one that does as it does
        self.regular = not notes

    def check(self, checks: int | None, last: _Replica | None) -> None:
        """Compare some replicas with the first; those that differ are captured, and where they begin is looked for.

        ``last``: what the last replica did in its first step, where it ran already.
        """
        if not self.regular or len(self.origins) < 2:
            return
        size = len(self.layout.offsets)
        for number in spread(len(self.origins), max(1, (checks or size) // size)):
            if not self._look_at(number, last if number == len(self.origins) - 1 else None):
                return
        for _ in range(_HALVINGS):
            between = self._between()
            if between is None or not self._look_at(between, None):
                break

    def _look_at(self, number: int, tried: _Replica | None) -> bool:
        """Run a replica for a step, and further if no captured one does the same; False: it could not be run."""
        ranks = self.layout.replica(int(self.origins[number]))
        self.progress(f"checking {_named(ranks)}")
        tried = tried or self._run(ranks, is_brief=True)
        if tried.failures:
            self.notes.append(f"Not checked, because it failed where rank 0 did not: {tried.failures[0]}.")
            return False
        parts = ""
        for known, replica in self.captured.items():
            difference = _difference(replica, tried)
            if difference is None:
                self.like[number] = known
                return True
            parts = parts or difference
        self.progress(f"capturing {_named(ranks)}")
        found = self._run(ranks, is_brief=False)
        if found.failures:
            self.notes.append(f"Not captured, because it failed where rank 0 did not: {found.failures[0]}.")
            return False
        self.captured[number], self.like[number] = found, number
        self.notes.append(f"{_named(ranks).capitalize()} captured, too: {parts}.")
        return True

    def _run(self, ranks: tuple[int, ...], *, is_brief: bool) -> _Replica:
        """With the first replica, which it may hear from."""
        everyone = (*self.layout.offsets, *ranks)
        brief = frozenset(everyone) if is_brief else frozenset[int]()
        stands_for = self.layout.stands_for(0, ranks)
        wave = Wave(everyone, self.steps, brief, frozenset(everyone), stands_for)
        return _try(wave, self.setting, ranks)

    def _between(self) -> int | None:
        """A replica between two neighbours that differ; the one after the first goes first: rank 0 is often special."""
        numbers = sorted(self.like)
        for before, after in itertools.pairwise(numbers):
            if self.like[before] != self.like[after] and after - before > 1:
                return before + 1 if before == 0 else (before + after) // 2
        return None

    def answer(self) -> Answer:
        """What was found."""
        numbers = sorted(self.like)
        gap = self._between()
        if gap is not None:
            self.notes.append(f"Where ranks begin to differ was not found: {_named((int(self.origins[gap]),))} may.")
        ends = [*numbers[1:], len(self.origins)]
        others: dict[int, list[int]] = {number: [] for number in self.captured}
        if self.regular and not self.captured[0].failures:
            for number, end in zip(numbers, ends):
                others[self.like[number]] += range(number, end)
        stands_for: dict[int, Sequence[int]] = {}
        for number, alike in others.items():
            origins = self.origins[[other for other in alike if other != number]]
            for offset in self.layout.offsets:
                stands_for[int(self.origins[number]) + offset] = (origins + offset).tolist()
        checked = [self.layout.replica(int(self.origins[number])) for number in numbers if number not in self.captured]
        traces = [trace for _, replica in sorted(self.captured.items()) for trace in replica.traces]
        return (
            tuple(sorted(traces, key=lambda trace: trace.manifest.rank)),
            {rank: ranks for rank, ranks in stands_for.items() if ranks},
            tuple(sorted(rank for ranks in checked for rank in ranks)),
            tuple(self.notes),
        )


def _difference(one: _Replica, other: _Replica) -> str | None:
    """What two replicas do differently in their first step; None: nothing."""
    for mine, theirs in zip(one.traces, other.traces):
        first = fingerprint(mine, 1).first_difference(fingerprint(theirs, 1))
        if first is not None:
            return describe_difference(mine, theirs, first)
    return None


def _named(ranks: tuple[int, ...]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
