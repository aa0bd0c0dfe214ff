"""Answers queries of emulated devices: a socket in each rank's log directory, served by one thread."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from presim.capture.reading.fetches import LIVE_WORKERS
from presim.engine.simulation_options import Options
from presim.evaluation.live.clock import Clock
from presim.evaluation.live.questions import QUESTION_BYTES, Ask, LiveAnswer, LiveQuestion, Status
from presim.evaluation.live.shared_answers import QUERIES, SharedAnswers
from presim.evaluation.live.stall_timeout import StallTimeout
from presim.hardware.cluster import Cluster

_SOCKET = "clock"
_POLL_S = 0.005  # between two checks of ranks that others wait for
# Without a live clock, scripts query durations between events to choose a kernel by them. There the host takes no time,
# so that the choice is the same in every run.
_UNTIMED = Options.of(host_time=False)


class Waiting(Protocol):
    """The state of ranks that ask no question; implemented by `presim.capture.processes.blocked.BlockedRanks`."""

    def __call__(self, rank: int) -> bool:
        """Whether it waits for another rank."""
        ...

    def has_ended(self, rank: int) -> bool:
        """Whether its process is gone."""
        ...

    def cpu_ticks(self, rank: int) -> int:
        """CPU time of its process and of those that it started."""
        ...


class LiveServer:
    """Simulates while ranks run; ``live``: they see the simulated clock, not only what has ended on the device.

    Each rank is priced on its own nodes. ``blocked`` is used with several ranks only. ``as_it_came``: see
    `presim.evaluation.live.host_times.LiveHostTimes`. ``host_factors``: the host factor of a rank on a cluster as it
    sees it; None: that of the options.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: Options,
        *,
        live: bool,
        prices: Sequence[Path] = (),
        blocked: Waiting | None = None,
        as_it_came: float = 1.0,
        host_factors: Callable[[Cluster], float] | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._host_factors = host_factors
        self._live = live
        self._prices = tuple(prices)
        self._blocked = blocked
        self._as_it_came = as_it_came
        self._directories: dict[int, Path] = {}
        self._represented_ranks: dict[int, Sequence[int]] = {}
        self._clocks: dict[int, Clock] = {}  # of the hosts, by rank
        self._durations: dict[int, Clock] = {}  # without a live clock: for durations between events, by rank
        self._shared: dict[Ask, SharedAnswers] = {}  # without a live clock, by kind of question
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, socket.socket] = {}
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="presim live clock", daemon=True)
        self._error: BaseException | None = None

    def add(self, rank: int, directory: Path, represented_ranks: Sequence[int] = ()) -> dict[str, str]:
        """Listen for a rank that will log to a directory; returns variables for its environment.

        All ranks are added before the server starts. ``represented_ranks``: the ranks that this one represents.
        """
        self._directories[rank] = directory
        self._represented_ranks[rank] = represented_ranks
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        folder = os.open(directory, os.O_PATH | os.O_CLOEXEC)
        try:  # the name of a socket has room for 107 characters, a directory may have more
            listener.bind(f"/proc/self/fd/{folder}/{_SOCKET}")
        finally:
            os.close(folder)
        listener.listen()
        self._selector.register(listener, selectors.EVENT_READ, ("rank", rank))
        return self._live_variables(rank) if self._live else {}

    def _live_variables(self, rank: int) -> dict[str, str]:
        options = self._options_of(rank)
        factor = 1.0 if options.host_factor is None else options.host_factor
        costs = dataclasses.astuple(options.calls)
        seen = self._cluster.as_seen_by(rank)
        return {
            "PRESIM_LIVE": f"{self._as_it_came * factor!r} {' '.join(map(str, costs))}",
            LIVE_WORKERS: f"{factor!r} {seen.node.cores / seen.gpus_per_node!r}",
        }

    def _options_of(self, rank: int) -> Options:
        """The options with the host factor of the rank's node."""
        if self._host_factors is None:
            return self._options
        factor = self._host_factors(self._cluster.as_seen_by(rank))
        return dataclasses.replace(self._options, host_factor=factor)

    def check(self) -> None:
        """Raise an error that occurred while answering a question."""
        if self._error is not None:
            raise self._error

    def __enter__(self) -> LiveServer:
        if not self._live:
            queries, durations = (
                SharedAnswers(self._directories, self._cluster, self._blocked or (lambda rank: False)) for _ in range(2)
            )
            self._shared = {**dict.fromkeys(QUERIES, queries), Ask.ELAPSED: durations}
        self._selector.register(self._woken, selectors.EVENT_READ, ("end", 0))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wake.send(b"x")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._wake.close()

    def _serve(self) -> None:
        look = (
            functools.partial(self._check_idle_ranks, self._blocked, StallTimeout(self._blocked.cpu_ticks))
            if self._blocked
            else lambda: None
        )
        while True:
            for key, _ in self._selector.select(self._pause_s()):
                source, rank = key.data
                if source == "end":
                    return
                if source == "rank":
                    self._accept(key.fileobj, rank)  # type: ignore[arg-type]
                else:
                    self._receive(key.fileobj, rank)  # type: ignore[arg-type]
            self._guarded(look)
            self._guarded(self._settle)

    def _shared_clock(self) -> Clock | None:
        return next(iter(self._clocks.values()), None) if self._live and len(self._directories) > 1 else None

    def _pause_s(self) -> float | None:
        clock = self._shared_clock()
        waits = clock.asking if clock else any(shared.is_waiting for shared in self._shares())
        return _POLL_S if waits else None

    def _check_idle_ranks(self, blocked: Waiting, timeout: StallTimeout) -> None:
        """Check the running ranks that others wait for: read their new work, and set aside those that are blocked."""
        clock = self._shared_clock()
        if clock is None or not clock.asking:
            return
        self._take_back(clock)
        has_new_work = sum(clock.read_new_work(rank) for rank in clock.not_asking) > 0  # a sum, to read every rank
        for rank in clock.not_asking:
            if rank not in self._connections and blocked.has_ended(rank):
                clock.end(rank)
        running = [rank for rank in clock.waited_for if not blocked(rank)]
        if running:
            timeout.wait_for(running)
        elif any(clock.read_new_work(rank) for rank in clock.waited_for):  # before it was found waiting
            has_new_work = True
        elif clock.waited_for and all(map(blocked, clock.waited_for)):  # still blocked, and no other rank could end it
            for rank in clock.waited_for:
                clock.set_aside(rank)
            has_new_work = True
        if has_new_work:
            self._answer(clock)
        timeout.check_stuck(clock.stuck, clock.describe_incomplete)

    def _take_back(self, clock: Clock) -> None:
        """Wait again for ranks that were set aside and are no longer blocked."""
        for rank in clock.set_aside_ranks:
            if self._blocked and not self._blocked(rank):
                clock.take_back(rank)

    def _accept(self, listener: socket.socket, rank: int) -> None:
        connection, _ = listener.accept()
        self._connections[rank] = connection
        self._selector.register(connection, selectors.EVENT_READ, ("question", rank))

    def _receive(self, connection: socket.socket, rank: int) -> None:
        message = b""
        with contextlib.suppress(ConnectionResetError):  # it was killed before it read its answer
            message = connection.recv(QUESTION_BYTES + 1)
        if not message:
            self._selector.unregister(connection)
            connection.close()
            del self._connections[rank]
        self._guarded(lambda: self._take(rank, message))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            if self._error is None:
                work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the launcher's own thread reports it
            self._error = error
        if self._error is not None:
            self._give_up()

    def _take(self, rank: int, message: bytes) -> None:
        if not message:
            self._end(rank)
            return
        question = LiveQuestion.unpack(message)
        if question.ask in self._shared:
            self._shared[question.ask].ask(rank, question)
        else:
            self._simulate(rank, question)

    def _settle(self) -> None:
        """Answer questions that ranks share; an answer may settle the same question of others."""
        while settlements := [settlement for shared in self._shares() for settlement in shared.settle()]:
            for rank, question, answer in settlements:
                if answer:
                    self._send(rank, answer)
                else:
                    self._simulate(rank, question)

    def _shares(self) -> Iterator[SharedAnswers]:
        yield from dict.fromkeys(self._shared.values())

    def _simulate(self, rank: int, question: LiveQuestion) -> None:
        clock = self._clock_of(rank, question.ask)
        self._take_back(clock)
        clock.ask(rank, question)
        self._answer(clock)

    def _end(self, rank: int) -> None:
        """Tell the clocks that a rank has ended, which other ranks on them may wait for."""
        for shared in self._shares():
            shared.end(rank)
        if not self._shared:
            self._take_back(self._clock_of(rank, Ask.SYNC))
        for clocks in (self._clocks, self._durations):
            if rank in clocks:
                clocks[rank].end(rank)
                self._answer(clocks[rank])

    def _clock_of(self, rank: int, ask: Ask) -> Clock:
        """The clock that answers a rank's question.

        With a live clock it is one for all ranks. Without, each rank has two of its own, so that no rank waits for
        another: that of its host, and for durations one on which hosts take no time.
        """
        untimed = ask == Ask.ELAPSED and not self._live
        clocks = self._durations if untimed else self._clocks
        if rank not in clocks:
            ranks = self._directories if self._live else {rank: self._directories[rank]}
            clock = Clock(
                ranks,
                self._cluster,
                {number: _UNTIMED if untimed else self._options_of(number) for number in ranks},
                waits_for_events=untimed,
                prices=self._prices,
                stands_for={number: self._represented_ranks[number] for number in ranks},
                as_it_came=self._as_it_came,
            )
            clocks |= dict.fromkeys(ranks, clock)
        return clocks[rank]

    def _answer(self, clock: Clock) -> None:
        for rank, answer in clock.answers():
            for shared in self._shares():
                shared.answered(rank, answer)
            self._send(rank, answer)

    def _send(self, rank: int, answer: LiveAnswer) -> None:
        with contextlib.suppress(KeyError, OSError):  # it ended meanwhile, which the launcher sees
            self._connections[rank].send(answer.pack())

    def _give_up(self) -> None:
        """Release all waiting ranks; the launcher ends the job."""
        for rank in self._connections:
            self._send(rank, LiveAnswer(Status.NOBODY))
