"""Ranks that do the same get one answer; a rank that does something else is simulated itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.evaluation.live import shared_answers
from presim.evaluation.live.questions import Ask, LiveAnswer, LiveQuestion, Status
from presim.evaluation.live.shared_answers import SharedAnswers
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.schema import Kind, Phase
from support.capture_logs import LogBuilder

CLUSTER = choose_cluster(gpu="h100-sxm", nodes=1, gpus_per_node=2)
SIMULATE = "simulate"


class Job:
    """Ranks that write their logs and query events; a leader's query number n is answered with its own number."""

    def __init__(self, directory: Path, *, blocked: set[int] | None = None) -> None:
        self.logs = {rank: LogBuilder() for rank in range(3)}
        self.directories = {rank: directory / str(rank) for rank in self.logs}
        for path in self.directories.values():
            path.mkdir()
        self.shared = SharedAnswers(self.directories, CLUSTER, (set() if blocked is None else blocked).__contains__)
        self.serials = dict.fromkeys(self.logs, 0)

    def work(self, rank: int, text: str = "memset bytes=1", *, phase: Phase = Phase.FORWARD) -> None:
        """Launch something and record an event after it."""
        self.logs[rank].record(Kind.WORK, work=text, phase=phase)
        self.serials[rank] += 1
        self.logs[rank].record(Kind.EVENT_RECORD, object=self.serials[rank], phase=phase)

    def query(self, rank: int, number: int, status: Status = Status.YES) -> dict[int, LiveAnswer | str]:
        """Query the latest event; returns what becomes of all pending queries."""
        self.logs[rank].write(self.directories[rank])
        records = len(self.logs[rank].records())
        self.shared.ask(rank, LiveQuestion(Ask.EVENT, records, 0, self.serials[rank], number))
        return self.settle(LiveAnswer(status, ended=self.serials[rank] + 1))

    def settle(self, answer: LiveAnswer) -> dict[int, LiveAnswer | str]:
        outcomes: dict[int, LiveAnswer | str] = {}
        while settled := list(self.shared.settle()):
            for rank, _, shared_answer in settled:
                outcomes[rank] = shared_answer or SIMULATE
                if not shared_answer:
                    self.shared.answered(rank, answer)
        return outcomes


def test_a_rank_that_does_the_same_gets_the_answer_with_its_own_serials(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.work(1, "memset bytes=8", phase=Phase.OTHER)  # in the set-up of this rank only
    for rank in (0, 1):
        job.work(rank)
    assert job.query(0, 0) == {0: SIMULATE}
    assert job.query(1, 0) == {1: LiveAnswer(Status.YES, ended=3)}


def test_a_query_waits_for_that_of_the_leader(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for rank in (0, 1):
        job.work(rank)
    job.query(0, 0)
    job.query(1, 0)
    for rank in (1, 0):
        job.work(rank, "memset bytes=2")
    assert job.query(1, 4) == {}
    assert job.shared.is_waiting
    assert job.query(0, 4, Status.NOT_YET) == {0: SIMULATE, 1: LiveAnswer(Status.NOT_YET, ended=3)}
    assert not job.shared.is_waiting


def test_what_the_leader_needed_not_ask_holds_until_it_asks_again(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for rank in (0, 1):
        job.work(rank)
    job.query(0, 0, Status.NOT_YET)
    job.query(1, 0)
    job.query(0, 7)
    assert job.query(1, 1) == {1: LiveAnswer(Status.NOT_YET, until=7)}
    assert job.query(1, 7) == {1: LiveAnswer(Status.YES, ended=2)}


def test_a_stream_that_the_leader_did_not_ask_for_is_a_difference(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for rank in (0, 1):
        job.work(rank)
    job.query(0, 0, Status.NOT_YET)
    job.query(1, 0)
    job.query(0, 7)
    job.shared.ask(1, LiveQuestion(Ask.STREAM, len(job.logs[1].records()), 0, 0, 1))
    assert job.settle(LiveAnswer(Status.YES)) == {1: SIMULATE}


def test_queries_of_two_threads_may_arrive_in_another_order(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for rank in (0, 1):
        job.work(rank)
        job.query(rank, 3)
    assert job.query(0, 2) == {0: SIMULATE}
    assert job.query(1, 2) == {1: LiveAnswer(Status.YES, ended=2)}


def test_a_rank_that_does_something_else_is_simulated_from_then_on(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for rank in (0, 1, 2):
        job.work(rank)
    for rank in (0, 1, 2):
        job.query(rank, 0)
    for rank, text in enumerate(("memset bytes=2", "memset bytes=3", "memset bytes=3")):
        job.work(rank, text)
    assert job.query(0, 1) == {0: SIMULATE}
    assert job.query(1, 1) == {1: SIMULATE}
    assert job.query(2, 1) == {2: SIMULATE}  # its leader went another way
    job.work(1)
    assert job.query(1, 2) == {1: SIMULATE}


def test_ranks_that_differ_in_their_first_query_may_follow_another(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for rank, text in enumerate(("memset bytes=2", "memset bytes=3", "memset bytes=3")):
        job.work(rank, text)
    assert [job.query(rank, 0)[rank] for rank in (0, 1)] == [SIMULATE, SIMULATE]
    assert job.query(2, 0) == {2: LiveAnswer(Status.YES, ended=2)}


def test_a_duration_belongs_to_its_two_recordings(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.work(1, "memset bytes=8", phase=Phase.OTHER)  # so that the serials differ
    for rank in (0, 1, 2) * 3:
        job.work(rank)
    answers = {}
    for rank, recordings_between in enumerate((2, 2, 1)):
        last = job.serials[rank]
        job.logs[rank].write(job.directories[rank])
        records = len(job.logs[rank].records())
        question = LiveQuestion(Ask.ELAPSED, records, 0, last - recordings_between, last)
        job.shared.ask(rank, question)
        answers |= job.settle(LiveAnswer(Status.YES, value=5000, ended=last + 1))
    assert answers == {0: SIMULATE, 1: LiveAnswer(Status.YES, value=5000, ended=5), 2: SIMULATE}


@pytest.mark.parametrize("reason", ["ended", "blocked", "late"])
def test_no_rank_waits_for_a_leader_that_does_not_come(
    tmp_path: Path, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked: set[int] = set()
    job = Job(tmp_path, blocked=blocked)
    for rank in (0, 1):
        job.work(rank)
        job.query(rank, 0)
    assert job.query(1, 1) == {}
    if reason == "ended":
        job.shared.end(0)
    elif reason == "blocked":
        blocked.add(0)
    else:
        monkeypatch.setattr(shared_answers, "_LEADER_S", 0.0)
    assert job.settle(LiveAnswer(Status.YES)) == {1: SIMULATE}


def test_ranks_on_other_gpus_share_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path)
    mixed = choose_cluster(gpu="h100-sxm", nodes=1, gpus_per_node=2)
    job.shared = SharedAnswers(job.directories, _Mixed(mixed))  # type: ignore[arg-type]
    for rank in (0, 1):
        job.work(rank)
    assert job.query(0, 0) == {0: SIMULATE}
    assert job.query(1, 0) == {1: SIMULATE}


class _Mixed:
    def __init__(self, cluster: object) -> None:
        self.cluster = cluster

    def as_seen_by(self, rank: int) -> object:
        return self.cluster, rank
