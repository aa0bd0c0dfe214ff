"""What NCCL sets up is counted once, where a communicator is first used."""

from __future__ import annotations

import pytest

from presim.analysis.time.communicator_waits import connecting_note, find_connecting
from presim.analysis.time.steps import Step
from presim.cost.collectives.communicator_setup import connection, creation, peer
from presim.engine.simulate import simulate
from presim.result import Connecting
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Group, Manifest
from presim.trace.signatures import Collective
from support import fakes

EVER = 1 << 60
SECOND_NS = 20_000  # the first call runs, for 37 us; the second waits for it


def call(kind: str, group: int = 0, of: int = -1) -> Collective:
    return Collective(kind, 1 << 20, "float32", group, of)


def found(calls: list[Collective], start_ns: int = 0, end_ns: int = EVER) -> Connecting | None:
    groups = (Group("world", (0, 1, 2, 3), 4), Group("pair", (0, 1), 2), Group("alone", (0,), 1))
    build = TraceBuilder(Manifest(world_size=4, rank=0, gpu="", gpus_per_node=8, script="", groups=groups))
    for each in calls:
        build.work(each)
    priced = fakes.priced(build.trace())
    return find_connecting(priced.trace, simulate(priced), Step(slice(0, len(calls)), start_ns, end_ns))


@pytest.mark.parametrize("times", [1, 5])
def test_a_communicator_is_made_once_however_often_it_is_used(times: int) -> None:
    once = found([call("all_reduce")] * times + [call("all_gather")] * (times - 1))
    assert once is not None
    assert (once.communicators, once.before_s) == (1, 0)
    assert once.in_first_step_s == pytest.approx((creation(4) + connection()).seconds, abs=1e-3)


def test_each_peer_of_sends_is_connected_once() -> None:
    several = found([call("send", of=1), call("recv", of=1), call("send", of=2), call("send", 1, of=1)])
    assert several is not None
    assert several.communicators == 2
    whole = creation(4) + creation(2) + peer() + peer() + peer()
    assert (several.low_s, several.high_s) == (pytest.approx(whole.low_s), pytest.approx(whole.high_s))


def test_setup_before_the_first_step_is_separate() -> None:
    early = found([call("broadcast")], start_ns=EVER - 1)
    assert early is not None
    assert early.in_first_step_s == 0 < early.before_s


def test_setup_after_the_first_step_is_not_counted() -> None:
    both = found([call("all_reduce"), call("all_reduce", 1)], end_ns=SECOND_NS)
    assert both is not None
    assert both.communicators == 1


def test_a_single_rank_has_no_connections() -> None:
    assert found([call("all_reduce", 2)]) is None
    assert connecting_note(None) == []


def test_the_note_has_the_setup_times() -> None:
    (note,) = connecting_note(found([call("all_reduce")]))
    assert note.startswith("NCCL creates and connects a communicator at the first use")
