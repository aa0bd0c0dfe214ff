"""One simulated clock for all running ranks: answers a query once nothing can change the answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from presim.cost.chain import shared_ports
from presim.engine.live import LiveEngine
from presim.engine.ports import port_columns
from presim.engine.simulation_options import Options
from presim.evaluation.live.collective_matching import CollectiveMatcher
from presim.evaluation.live.feed import Feed
from presim.evaluation.live.host_times import LiveHostTimes
from presim.evaluation.live.questions import Ask, LiveAnswer, LiveQuestion, Status
from presim.hardware.cluster import Cluster
from presim.trace.host_noise import HostNoise
from presim.trace.representatives import Representatives

_HOST_SHARE = 4  # once streams are full, 1/4 of the time until an event ends is for the host's own work
_HELD_OPS = 1 << 16  # about 20 MB: until then nothing is forgotten


@dataclasses.dataclass(frozen=True)
class _Pending:
    """A question that is not answered yet."""

    question: LiveQuestion
    op: int  # the op that the host has to pass


class Clock:
    """Coordinates the hosts of the running ranks.

    A rank that asks a question waits for the answer. A rank that runs may issue more work from its present time on. So
    the engine simulates up to the earliest running rank, and answers each question whose wait ends before that.

    ``options``: one per rank. They differ only in the host factor of the rank's node. ``waits_for_events``: a query for
    a duration waits for its events first, for hosts that take no time.
    """

    def __init__(
        self,
        directories: dict[int, Path],
        cluster: Cluster,
        options: Mapping[int, Options],
        *,
        waits_for_events: bool = False,
        prices: Sequence[Path] = (),
        stands_for: Mapping[int, Sequence[int]] | None = None,
        as_it_came: float = 1.0,
    ) -> None:
        self._waits_for_events = waits_for_events
        representatives = Representatives(sorted(directories), stands_for)
        first = min(directories)
        ports = port_columns(shared_ports(cluster.as_seen_by(first)), sorted(directories), representatives)
        self._engine = LiveEngine(len(directories), options[first], ports=ports)
        recurring = HostNoise()
        self._meetings = CollectiveMatcher(self._engine, representatives)
        self._feeds = {
            rank: Feed(
                directories[rank],
                rank,
                engine=self._engine,
                index=index,
                meetings=self._meetings,
                cluster=cluster.as_seen_by(rank),
                options=options[rank],
                prices=prices,
                host=LiveHostTimes(recurring, as_it_came),
                representatives=representatives,
            )
            for index, rank in enumerate(sorted(directories))
        }
        self._running = set(directories)
        self._set_aside: set[int] = set()
        self._pending: dict[int, _Pending] = {}
        self._most_held = _HELD_OPS

    def ask(self, rank: int, question: LiveQuestion) -> None:
        """Accept a question; `answers` yields its answer as soon as it is certain."""
        feed = self._feeds[rank]
        self.take_back(rank)
        if question.ask == Ask.SYNC:
            feed.take(question.records)
        else:  # by any thread, while another is within an operator
            feed.take_settled(question.records)
        if question.ask == Ask.ELAPSED and not (feed.knows(question.first) and feed.knows(question.second)):
            feed.take(question.records)
        if question.ask == Ask.SYNC:
            op = feed.wait_of(question.first)
        else:
            if self._waits_for_events:
                self._wait_for(feed, question)
            op = self._engine.add_marker(feed.index, feed.host_ns_until(question.cpu_ns))
        self._pending[rank] = _Pending(question, op)

    def answers(self) -> Iterator[tuple[int, LiveAnswer]]:
        """Simulate as far as nothing can change; yields the ranks that can be answered, with their answers."""
        self._engine.run()
        for rank, pending in sorted(self._pending.items()):
            if self._engine.has_passed(self._feeds[rank].index, pending.op):
                del self._pending[rank]
                yield rank, self._answer(self._feeds[rank], pending)
        if self._engine.ops_in_memory > self._most_held:
            self._engine.drop_finished([self._feeds[rank].first_wait for rank in sorted(self._feeds)])
            self._most_held = _HELD_OPS + 2 * self._engine.ops_in_memory

    @property
    def asking(self) -> bool:
        """Whether any rank waits for an answer."""
        return bool(self._pending)

    @property
    def set_aside_ranks(self) -> list[int]:
        """Ranks that are assumed to issue no work for now."""
        return sorted(self._set_aside)

    @property
    def not_asking(self) -> list[int]:
        """Ranks that run while others wait."""
        return sorted(self._running - set(self._pending)) if self._pending else []

    @property
    def waited_for(self) -> list[int]:
        """Ranks for which others wait."""
        return [rank for rank in self.not_asking if rank not in self._set_aside]

    @property
    def stuck(self) -> bool:
        """Whether ranks wait and no running rank could end their wait."""
        return bool(self._pending) and self._running <= set(self._pending) | self._set_aside

    def describe_incomplete(self) -> list[str]:
        """Descriptions of collectives that wait for ranks which have not called them."""
        return self._meetings.describe_incomplete()

    def read_new_work(self, rank: int) -> bool:
        """Read the work that a running rank has issued without a question; returns whether there was any."""
        has_new_work = self._feeds[rank].take_settled()
        if has_new_work:
            self.take_back(rank)
        return has_new_work

    def set_aside(self, rank: int) -> None:
        """Simulate without waiting for a rank whose process waits for data from another rank.

        On the cluster, the host may not have to wait there, because only the emulation reads values immediately. Work
        that the rank issues afterwards is late: it is placed after what was already simulated on the same streams and
        resources. Answers that other ranks have received stay as they are.
        """
        self._set_aside.add(rank)
        self._engine.close(self._feeds[rank].index)

    def take_back(self, rank: int) -> None:
        """Undo `set_aside`: the rank can continue."""
        if rank in self._set_aside:
            self._set_aside.discard(rank)
            self._engine.open(self._feeds[rank].index)

    def end(self, rank: int) -> None:
        """Read the rest of the log of a rank that has ended, because other ranks may meet it there."""
        feed = self._feeds[rank]
        self._running.discard(rank)
        self._set_aside.discard(rank)
        if self._running:
            feed.take(feed.tail.count())
        feed.tail.close()
        self._pending.pop(rank, None)
        self._engine.close(feed.index)

    def _wait_for(self, feed: Feed, question: LiveQuestion) -> None:
        """Without a live clock the host waits for the recordings of its question, so that they are always complete."""
        for serial in (question.first, question.second):
            if serial in feed.recordings:
                self._engine.resolve_wait(self._engine.add_marker(feed.index, 0), feed.recordings[serial])

    def _answer(self, feed: Feed, pending: _Pending) -> LiveAnswer:
        question = pending.question
        host_ns = self._engine.end_ns(pending.op)
        status, value, ahead = Status.YES, 0, 0
        if question.ask == Ask.EVENT:
            status = self._has_ended(feed, question.first, host_ns)
            if status == Status.NOT_YET and question.first in feed.recordings:  # else it is not read yet
                recording = feed.recordings[question.first]
                value, ahead = self._engine.bound_until(feed.index, recording, host_ns, _HOST_SHARE)
        elif question.ask == Ask.STREAM:
            status = Status.NOT_YET if self._engine.is_busy(feed.index, question.first) else Status.YES
        elif question.ask == Ask.ELAPSED:
            status = max(self._has_ended(feed, serial, host_ns) for serial in (question.first, question.second))
            if status == Status.YES:
                value = self._elapsed(feed, question.first, question.second)
        room = self._engine.free_launches(feed.index)
        return LiveAnswer(status, host_ns, value, room, feed.ended(host_ns), feed.host_per_cpu, ahead)

    def _has_ended(self, feed: Feed, serial: int, host_ns: int) -> Status:
        recording = feed.recordings.get(serial)
        if recording is None:  # not read yet, or from a part of the program that is not logged
            return Status.YES if feed.knows(serial) else Status.NOT_YET
        return Status.YES if 0 <= self._engine.end_ns(recording) <= host_ns else Status.NOT_YET

    def _elapsed(self, feed: Feed, first: int, second: int) -> int:
        start, end = (feed.recordings.get(serial) for serial in (first, second))
        if start is None or end is None:
            return 0
        return self._engine.end_ns(end) - self._engine.end_ns(start)
