"""One simulated clock for all running ranks: answers a query once nothing can change the answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from presim.cost.chain import shared_ports
from presim.engine.live import LiveEngine
from presim.engine.options import Options
from presim.engine.ports import port_columns
from presim.hardware.cluster import Cluster
from presim.live.collective_matching import CollectiveMatcher
from presim.live.feed import Feed
from presim.live.host_times import HostTimes
from presim.live.questions import Answer, Ask, Question, Status
from presim.trace.host_noise import HostNoise
from presim.trace.representatives import Representatives

_HELD_OPS = 1 << 16  # about 20 MB: until then nothing is forgotten


@dataclasses.dataclass(frozen=True)
class _Pending:
    """A question on its way through the simulation."""

    question: Question
    op: int  # the host has to come past it


class Clock:
    """The coordinator of the ranks' hosts.

    A rank that asks stands still until it is answered, and one that runs may ask for more from where it stands on: so
    the engine simulates up to the first rank that runs, and a rank is answered when its wait ends before that.
    """

    def __init__(
        self,
        directories: dict[int, Path],
        cluster: Cluster,
        options: Options,
        *,
        live: bool,
        prices: Sequence[Path] = (),
        stands_for: Mapping[int, Sequence[int]] | None = None,
        as_it_came: float = 1.0,
    ) -> None:
        self._live = live  # else hosts take no time, and whoever asks for a time waits for it first
        representatives = Representatives(sorted(directories), stands_for)
        ports = port_columns(shared_ports(cluster), sorted(directories), representatives)
        self._engine = LiveEngine(len(directories), options, ports=ports)
        recurring = HostNoise()
        self._meetings = CollectiveMatcher(self._engine, representatives)
        self._feeds = {
            rank: Feed(
                directories[rank],
                rank,
                engine=self._engine,
                index=index,
                meetings=self._meetings,
                cluster=cluster,
                options=options,
                prices=prices,
                host=HostTimes(recurring, as_it_came),
            )
            for index, rank in enumerate(sorted(directories))
        }
        self._running = set(directories)
        self._set_aside: set[int] = set()
        self._pending: dict[int, _Pending] = {}
        self._most_held = _HELD_OPS

    def ask(self, rank: int, question: Question) -> None:
        """Take a question; its answer comes out of `answers`, now or later."""
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
            if not self._live:
                self._wait_for(feed, question)
            op = self._engine.mark(feed.index, feed.host_ns_until(question.cpu_ns))
        self._pending[rank] = _Pending(question, op)

    def answers(self) -> Iterator[tuple[int, Answer]]:
        """Simulate as far as it is certain; the answers that are certain now, by rank."""
        self._engine.run()
        for rank, pending in sorted(self._pending.items()):
            if self._engine.passed(self._feeds[rank].index, pending.op):
                del self._pending[rank]
                yield rank, self._answer(self._feeds[rank], pending)
        if self._engine.held > self._most_held:
            self._engine.forget([self._feeds[rank].first_wait for rank in sorted(self._feeds)])
            self._most_held = _HELD_OPS + 2 * self._engine.held

    @property
    def asking(self) -> bool:
        """Whether any rank waits for an answer."""
        return bool(self._pending)

    @property
    def set_aside_ranks(self) -> list[int]:
        """Those that are taken to ask for nothing for now."""
        return sorted(self._set_aside)

    @property
    def not_asking(self) -> list[int]:
        """Ranks that run while others wait."""
        return sorted(self._running - set(self._pending)) if self._pending else []

    @property
    def waited_for(self) -> list[int]:
        """Those that keep others waiting."""
        return [rank for rank in self.not_asking if rank not in self._set_aside]

    @property
    def stuck(self) -> bool:
        """Whether ranks wait, and none is left that could end it."""
        return bool(self._pending) and self._running <= set(self._pending) | self._set_aside

    def unmet(self) -> list[str]:
        """Calls that wait for ranks which have not come, in words."""
        return self._meetings.unmet()

    def look(self, rank: int) -> bool:
        """Take what a rank has asked for that runs and asks no question; whether there was anything."""
        found = self._feeds[rank].take_settled()
        if found:
            self.take_back(rank)
        return found

    def set_aside(self, rank: int) -> None:
        """A rank's process waits for what another one has not sent yet, so it asks for nothing before others go on.

        The host of the cluster may not have to wait there, as only the emulation looks at values at once. What the rank
        asks for afterwards then comes late: it takes its place behind what was simulated on the same streams and
        resources; what was said of others stays, as it depends on the rank by what it had asked for already.
        """
        self._set_aside.add(rank)
        self._engine.close(self._feeds[rank].index)

    def take_back(self, rank: int) -> None:
        """It can go on."""
        if rank in self._set_aside:
            self._set_aside.discard(rank)
            self._engine.open(self._feeds[rank].index)

    def end(self, rank: int) -> None:
        """A rank has ended: take what is left of its log, as others may meet it there; nothing more comes from it."""
        feed = self._feeds[rank]
        self._running.discard(rank)
        self._set_aside.discard(rank)
        if self._running:
            feed.take(feed.tail.count())
        feed.tail.close()
        self._pending.pop(rank, None)
        self._engine.close(feed.index)

    def _wait_for(self, feed: Feed, question: Question) -> None:
        """The host waits for what it asks about: the device takes no time for it, so nothing is ever unfinished."""
        for serial in (question.first, question.second):
            if serial in feed.recordings:
                self._engine.aim(self._engine.mark(feed.index, 0), feed.recordings[serial])

    def _answer(self, feed: Feed, pending: _Pending) -> Answer:
        question = pending.question
        host_ns = self._engine.end_ns(pending.op)
        status, value = Status.YES, 0
        if question.ask == Ask.EVENT:
            status = self._has_ended(feed, question.first, host_ns)
        elif question.ask == Ask.STREAM:
            status = Status.NOT_YET if self._engine.busy(feed.index, question.first) else Status.YES
        elif question.ask == Ask.ELAPSED:
            status = max(self._has_ended(feed, serial, host_ns) for serial in (question.first, question.second))
            if status == Status.YES:
                value = self._elapsed(feed, question.first, question.second)
        room = self._engine.room(feed.index)
        return Answer(status, host_ns, value, room, feed.ended(host_ns), feed.host_pace)

    def _has_ended(self, feed: Feed, serial: int, host_ns: int) -> Status:
        recording = feed.recordings.get(serial)
        if recording is None:  # not handed over yet, or of a part of the program that is not in the log
            return Status.YES if feed.knows(serial) else Status.NOT_YET
        return Status.YES if 0 <= self._engine.end_ns(recording) <= host_ns else Status.NOT_YET

    def _elapsed(self, feed: Feed, first: int, second: int) -> int:
        start, end = (feed.recordings.get(serial) for serial in (first, second))
        if start is None or end is None:
            return 0
        return self._engine.end_ns(end) - self._engine.end_ns(start)
