"""Simulates a question of several ranks once, if they do the same work.

Without a live clock each rank is simulated alone, and ranks with the same work differ only in the noise of their hosts.
A rank that is simulated is a *leader*. A *follower* gets its leader's answers, matched by the number of the question,
for as long as both did the same work: kind, stream and descriptor of each record are compared. If a forward pass began
before the first question, records before it are ignored, as in `presim.capture.ranks.rank_comparison`. From its first
difference on, a follower is simulated itself.

The positions of communicators in the network are not compared: a follower's collectives take as long as its leader's.
"""

from __future__ import annotations

import bisect
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from presim.capture.reading.log_tail import LogTail
from presim.evaluation.live.questions import Ask, LiveAnswer, LiveQuestion, Status
from presim.hardware.cluster import Cluster
from presim.trace.schema import Kind, Phase

QUERIES = (Ask.EVENT, Ask.STREAM)  # numbered by the rank that asks
_LEADER_S = 1.0  # that a rank waits for a leader's question, which may be waiting for this rank
_NOT_WORK = (Kind.ALLOC, Kind.FREE, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE, Kind.RETAG, Kind.HOST_WAIT, Kind.HOST_CALL)


class QuestionHistory:
    """The questions of one rank and the work before each, as keys that are equal for ranks that do the same."""

    def __init__(self, directory: Path) -> None:
        self.numbers: list[int] = []  # of the questions that were asked, ascending
        self.keys: list[bytes] = []
        self.answers: list[LiveAnswer] = []
        self.first_serial = 0  # of recordings after the first question
        self._tail = LogTail(directory)
        self._text_hashes = np.zeros(0, np.int64)
        self._work = hashlib.blake2b(digest_size=16)

    def add(self, question: LiveQuestion) -> None:
        """Append a question."""
        records, texts = self._tail.read_texts(question.records)
        self._text_hashes = np.concatenate([self._text_hashes, np.array([hash(text) for text in texts], np.int64)])
        if not self.numbers:
            recorded = records["object"][records["kind"] == Kind.EVENT_RECORD]
            self.first_serial = int(recorded.max(initial=0))
            forward = np.flatnonzero(records["phase"] == Phase.FORWARD)
            records = records[int(forward[0]) if len(forward) else 0 :]
        self._work.update(self._words(records).tobytes())
        key = self._work.copy()
        key.update(repr((int(question.ask), *self._asked(question))).encode())
        number = self.numbers[-1] + 1 if self.numbers else 0
        if question.ask in QUERIES:  # two threads may ask in another order than they took their numbers
            number = max(question.second, number)
        self.numbers.append(number)
        self.keys.append(key.digest())

    def close(self) -> None:
        """Close the rank's log."""
        self._tail.close()

    def _asked(self, question: LiveQuestion) -> list[int]:
        """The stream, or the serials after the first question's."""
        if question.ask == Ask.STREAM:
            return [question.first]
        serials = [question.first] if question.ask == Ask.EVENT else [question.first, question.second]
        return [serial - self.first_serial for serial in serials]

    def _words(self, records: NDArray[np.void]) -> NDArray[np.int64]:
        """The compared columns of the records: kind, stream and descriptor [n, 3]."""
        records = records[~np.isin(records["kind"], _NOT_WORK)]
        described = records["kind"] <= Kind.COLLECTIVE
        texts = np.where(described, self._text_hashes[np.where(described, records["work"], 0)], 0)
        return np.stack([records["kind"].astype(np.int64), records["stream"].astype(np.int64), texts], axis=1)


class SharedAnswers:
    """Decides by question which ranks are simulated, and whose answer the others get.

    ``directories``: of the logs, by rank. ``cluster``: only ranks that see it alike share answers. ``is_blocked``:
    whether a rank waits for another one.
    """

    def __init__(
        self, directories: Mapping[int, Path], cluster: Cluster, is_blocked: Callable[[int], bool] = lambda rank: False
    ) -> None:
        self._directories = directories
        self._cluster = cluster
        self._is_blocked = is_blocked
        self._histories: dict[int, QuestionHistory] = {}
        self._leaders: dict[int, int] = {}  # of ranks that have asked; leaders lead themselves
        self._simulated: set[int] = set()  # leaders whose question is being answered
        self._ended: set[int] = set()
        self._pending: dict[int, tuple[LiveQuestion, float]] = {}  # with the time of asking

    @property
    def is_waiting(self) -> bool:
        """Whether a question waits for the same one of another rank."""
        return bool(self._pending)

    def ask(self, rank: int, question: LiveQuestion) -> None:
        """Take a rank's question; `settle` returns its answer, or that the rank has to be simulated."""
        if rank not in self._histories:
            self._histories[rank] = QuestionHistory(self._directories[rank])
        self._histories[rank].add(question)
        self._pending[rank] = question, time.monotonic()

    def settle(self) -> Iterator[tuple[int, LiveQuestion, LiveAnswer | None]]:
        """Pending questions with another rank's answer, or with None if the rank has to be simulated.

        The caller passes the answers of simulated ranks to `answered`, and calls this again.
        """
        for rank, (question, since) in sorted(self._pending.items()):
            leader = self._leaders[rank] = self._leader_of(rank)
            if leader != rank and (answer := self._shared_answer(rank, leader)):
                del self._pending[rank]
                yield rank, question, answer
                continue
            if leader != rank and self._is_worth_waiting(leader, time.monotonic() - since):
                continue
            self._leaders[rank] = rank
            self._simulated.add(rank)
            del self._pending[rank]
            yield rank, question, None

    def answered(self, rank: int, answer: LiveAnswer) -> None:
        """Keep the answer of a simulated rank for its followers; answers to other questions do not count."""
        if rank in self._simulated:
            self._simulated.discard(rank)
            self._histories[rank].answers.append(answer)

    def end(self, rank: int) -> None:
        """Expect no further questions of a rank."""
        self._ended.add(rank)
        self._pending.pop(rank, None)
        if rank in self._histories:
            self._histories[rank].close()

    def _leader_of(self, rank: int) -> int:
        """The rank's leader if both still agree in the latest question; else another leader, or the rank itself."""
        if self._leaders.get(rank) == rank:
            return rank
        candidates = [self._leaders[rank]] if rank in self._leaders else sorted(set(self._leaders.values()))
        return next((leader for leader in candidates if self._have_done_the_same(rank, leader)), rank)

    def _have_done_the_same(self, rank: int, leader: int) -> bool:
        """Whether they see the same cluster and agree in the latest question, if both have asked it."""
        if rank not in self._leaders and self._cluster.as_seen_by(rank) != self._cluster.as_seen_by(leader):
            return False
        history, led = self._histories[rank], self._histories[leader]
        index = bisect.bisect_left(led.numbers, history.numbers[-1])
        if index == len(led.numbers):
            return True  # not known yet
        if led.numbers[index] == history.numbers[-1]:
            return led.keys[index] == history.keys[-1]
        # The leader knew that it was too early to ask for an event; for streams, ranks always ask.
        return rank in self._leaders and self._pending[rank][0].ask == Ask.EVENT

    def _shared_answer(self, rank: int, leader: int) -> LiveAnswer | None:
        """The answer to the rank's latest question; None if the leader has not come so far."""
        history, led = self._histories[rank], self._histories[leader]
        index = bisect.bisect_left(led.numbers, history.numbers[-1])
        if index >= len(led.answers):
            return None
        if led.numbers[index] != history.numbers[-1]:
            return LiveAnswer(Status.NOT_YET, until=led.numbers[index])
        answer = led.answers[index]
        ended = answer.ended - led.first_serial + history.first_serial
        if self._pending[rank][0].ask == Ask.ELAPSED:
            return answer._replace(ended=ended, room=0)
        until = led.numbers[index + 1] if index + 1 < len(led.numbers) else 0
        return answer._replace(ended=ended, value=0, room=0, ahead=0, until=until)

    def _is_worth_waiting(self, leader: int, waited_s: float) -> bool:
        """Whether the leader may still ask the same question."""
        return leader not in self._ended and waited_s < _LEADER_S and not self._is_blocked(leader)
