"""The simulated clock answers what a running rank asks, from its log as far as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.engine.calls import CallCosts
from presim.engine.simulation_options import Options
from presim.evaluation.live.clock import Clock
from presim.evaluation.live.questions import Ask, LiveAnswer, LiveQuestion, Status
from presim.hardware.cluster import Cluster
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.schema import Kind
from support.capture_logs import LogBuilder

COPY = "copy direction=h2d bytes=1000000000 pinned=1"
OPTIONS = Options(calls=CallCosts(transfer=10, event=1), launch_latency_ns=100, sync_latency_ns=7)


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRESIM_ENGINE", "interpreted")


@pytest.fixture
def cluster() -> Cluster:
    return choose_cluster(gpu="h100-sxm", nodes=1, gpus_per_node=1)


class Rank:
    """A rank that writes its log and asks."""

    def __init__(self, directory: Path, clock: Clock, rank: int = 0) -> None:
        self.directory = directory
        self.clock = clock
        self.rank = rank
        self.log = LogBuilder()

    def ask(self, ask: Ask, cpu_ns: int, first: int = 0, second: int = 0) -> LiveAnswer | None:
        self.log.write(self.directory)
        self.clock.ask(self.rank, LiveQuestion(ask, len(self.log.records()), cpu_ns, first, second))
        return dict(self.clock.answers()).get(self.rank)


@pytest.fixture
def rank(tmp_path: Path, cluster: Cluster) -> Rank:
    return Rank(tmp_path, Clock({0: tmp_path}, cluster, {0: OPTIONS}))


def copy_ns(rank: Rank) -> int:
    """What one copy takes, as the simulation itself says it."""
    first = rank.log.record(Kind.WORK, work=COPY, cpu_ns=0)
    sync = rank.log.record(Kind.DEVICE_SYNC, cpu_ns=0)
    assert (first, sync) == (0, 1)
    answer = rank.ask(Ask.SYNC, 0, first=sync)
    assert answer is not None
    return answer.host_ns - 10 - 100 - 7


def test_a_synchronisation_lasts_until_the_device_is_done(rank: Rank) -> None:
    """Launch, latency, the work itself, and the host is told; a gigabyte over PCIe takes some 20 ms."""
    assert 10_000_000 < copy_ns(rank) < 40_000_000


def test_host_time_goes_on_from_the_answer(rank: Rank) -> None:
    """Between questions the host spends its CPU time, and what launches cost."""
    begin = copy_ns(rank) + 117
    rank.log.record(Kind.WORK, work=COPY, cpu_ns=500)
    answer = rank.ask(Ask.NOW, 800)
    assert answer is not None
    assert answer.host_ns == begin + 800 + 10
    answer = rank.ask(Ask.NOW, 900)
    assert answer is not None
    assert answer.host_ns == begin + 900 + 10


def test_an_event_has_ended_once_the_host_is_past_its_end(rank: Rank) -> None:
    """The query is of the moment at which it is made."""
    took = copy_ns(rank)
    rank.log.record(Kind.WORK, work=COPY, cpu_ns=0)
    rank.log.record(Kind.EVENT_RECORD, object=5, cpu_ns=0)
    early, late = rank.ask(Ask.EVENT, took // 2, first=5), rank.ask(Ask.EVENT, took + 1000, first=5)
    assert early is not None
    assert late is not None
    assert (early.status, late.status) == (Status.NOT_YET, Status.YES)
    assert (early.ended, late.ended) == (5, 6)


def test_a_stream_has_ended_once_nothing_is_left_on_it(rank: Rank) -> None:
    """Another stream is idle meanwhile."""
    took = copy_ns(rank)
    rank.log.record(Kind.WORK, work=COPY, stream=3, cpu_ns=0)
    answers = [rank.ask(Ask.STREAM, at, first=stream) for at, stream in ((10, 3), (20, 0), (took + 1000, 3))]
    assert [answer.status for answer in answers if answer] == [Status.NOT_YET, Status.YES, Status.YES]


def test_elapsed_time_is_that_between_two_ends(rank: Rank) -> None:
    """Not known before both have ended."""
    took = copy_ns(rank)
    rank.log.record(Kind.EVENT_RECORD, object=5, cpu_ns=0)
    rank.log.record(Kind.WORK, work=COPY, cpu_ns=0)
    rank.log.record(Kind.EVENT_RECORD, object=6, cpu_ns=0)
    early = rank.ask(Ask.ELAPSED, 10, first=5, second=6)
    late = rank.ask(Ask.ELAPSED, took + 1000, first=5, second=6)
    assert early is not None
    assert late is not None
    assert early.status == Status.NOT_YET
    assert (late.status, late.value) == (Status.YES, took + 10)  # its launch came 10 ns after the recording's


def test_without_a_live_clock_elapsed_time_is_the_device_s_alone(tmp_path: Path, cluster: Cluster) -> None:
    """Repeatable: whatever the host took between the launches, and though nobody waited for the events."""
    elapsed = []
    for host_ns in (0, 10**9):
        folder = tmp_path / str(host_ns)
        folder.mkdir()
        rank = Rank(folder, Clock({0: folder}, cluster, {0: Options.of(host_time=False)}, waits_for_events=True))
        rank.log.record(Kind.EVENT_RECORD, object=5, cpu_ns=0)
        rank.log.record(Kind.WORK, work=COPY, cpu_ns=host_ns)
        rank.log.record(Kind.EVENT_RECORD, object=6, cpu_ns=2 * host_ns)
        answer = rank.ask(Ask.ELAPSED, 2 * host_ns, first=5, second=6)
        assert answer is not None
        assert answer.status == Status.YES
        elapsed.append(answer.value)
    assert elapsed[0] == elapsed[1] > 10_000_000


def test_a_rank_that_waits_is_answered_when_no_other_can_change_the_answer(tmp_path: Path, cluster: Cluster) -> None:
    """Rank 0's wait ends at 20 ms or so; rank 1 stands at 5 us and could still ask for anything."""
    folders = {0: tmp_path / "0", 1: tmp_path / "1"}
    for folder in folders.values():
        folder.mkdir()
    clock = Clock(folders, cluster, dict.fromkeys(folders, OPTIONS))
    ranks = [Rank(folders[number], clock, number) for number in folders]
    ranks[1].log.record(Kind.WORK, work=COPY, cpu_ns=0)
    assert ranks[1].ask(Ask.NOW, 5_000) is not None
    ranks[0].log.record(Kind.WORK, work=COPY, cpu_ns=0)
    sync = ranks[0].log.record(Kind.DEVICE_SYNC, cpu_ns=0)
    assert ranks[0].ask(Ask.SYNC, 0, first=sync) is None
    ranks[1].log.record(Kind.DEVICE_SYNC, cpu_ns=6_000)
    ranks[1].log.write(folders[1])
    clock.ask(1, LiveQuestion(Ask.SYNC, 2, 6_000, first=1))
    assert [number for number, _ in clock.answers()] == [0, 1]


def test_each_rank_is_priced_on_the_nodes_of_its_group(tmp_path: Path) -> None:
    """The same copy takes longer on the node whose GPUs have older PCIe slots."""
    described = tmp_path / "mixed.toml"
    described.write_text(
        'nodes = 2\ngpus_per_node = 1\ngpu = "h100-sxm"\n\n'
        '[[groups]]\nname = "old"\nfirst_node = 1\nnodes = 1\ngpu = "a100-80gb-sxm"\n'
    )
    mixed = choose_cluster(cluster=described)
    folders = {0: tmp_path / "0", 1: tmp_path / "1"}
    for folder in folders.values():
        folder.mkdir()
    clock = Clock(folders, mixed, dict.fromkeys(folders, OPTIONS))
    for number, folder in folders.items():
        rank = Rank(folder, clock, number)
        rank.log.record(Kind.WORK, work=COPY, cpu_ns=0)
        sync = rank.log.record(Kind.DEVICE_SYNC, cpu_ns=0)
        rank.log.write(folder)
        clock.ask(number, LiveQuestion(Ask.SYNC, len(rank.log.records()), 0, first=sync))
    took = dict(clock.answers())
    clock.end(0)
    took |= dict(clock.answers())
    assert took[1].host_ns > 1.5 * took[0].host_ns
