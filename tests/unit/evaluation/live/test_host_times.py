"""What a running rank's host takes, from its log as far as it is written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from presim.capture.reading.assemble import Tables
from presim.evaluation.live.host_times import LiveHostTimes
from presim.trace.capture_speed import reference_ns
from presim.trace.host_noise import HostNoise
from presim.trace.schema import Kind, Phase
from support.capture_logs import LogBuilder
from support.products import KNOWN, OPERATOR

LAYER_NS = (1_000, 3_000, 2_000)


def steps(count: int, *, layers: int = 3) -> LogBuilder:
    """Each of so many layers, which are alike but for their numbers."""
    log = LogBuilder()
    for step in range(count):
        for layer in range(layers):
            for name in ("add", "mul", "exp"):
                kernel = f"kernel name={name} grid=8,1,1 block=128,1,1 shared=0"
                log.record(
                    Kind.WORK, work=kernel, scope=f"scope name=layers.{layer}", op=f"op name=aten::{name} in= out="
                )
        log.record(Kind.STEP, object=step)
    return log


def took(log: LogBuilder) -> NDArray[np.int64]:
    """CPU time of each record, without anything that disturbs it."""
    kinds = log.records()["kind"].tolist()
    return np.array([500 if kind == Kind.STEP else LAYER_NS[place % 10 % 3] for place, kind in enumerate(kinds)])


def counted(host: LiveHostTimes, log: LogBuilder, times: NDArray[np.int64], cuts: list[int]) -> NDArray[np.int64]:
    """What is handed to the engine of a log that comes in pieces."""
    tables, records = Tables(log.log()), log.records()
    parts = [slice(begin, end) for begin, end in zip([0, *cuts], [*cuts, len(records)])]
    pieces = [
        host.host_times_ns(records[part], times[part], tables.signatures_of(records[part]), tables) for part in parts
    ]
    return np.concatenate(pieces)


@given(st.lists(st.integers(0, 60), max_size=8).map(sorted))
def test_times_that_are_equal_stay_however_they_come_in(cuts: list[int]) -> None:
    log = steps(6)
    assert counted(LiveHostTimes(), log, took(log), cuts).tolist() == took(log).tolist()


def test_what_disturbs_a_stretch_that_has_recurred_does_not_count() -> None:
    """Times of three layers a step; in the first step nothing is taken to recur."""
    log = steps(6)
    times = took(log)
    disturbed = times.copy()
    disturbed[[4, 21, 54]] += 1_000_000
    result = counted(LiveHostTimes(), log, disturbed, list(range(1, 60)))
    assert result[4] == disturbed[4]
    assert result[21] < 1.2 * times[21]
    assert result[54] <= 1.1 * times[54]
    assert result[45:54].tolist() == pytest.approx(times[45:54], rel=0.1)


@given(st.lists(st.integers(0, 300), max_size=8).map(sorted))
def test_what_is_computed_behind_a_read_back_goes_by_what_was_read(cuts: list[int]) -> None:
    """Four tensors a layer are read back, of which the host computes for 1 us to 1 ms; pieces end anywhere."""
    log = LogBuilder()
    for step in range(6):
        for _ in range(4):
            for size in range(4):
                log.record(Kind.WORK, work=f"copy direction=d2h bytes={1024 << size} pinned=0")
                log.record(Kind.STREAM_SYNC)
                log.record(Kind.ALLOC, op="op name=aten::empty in= out=")
        log.record(Kind.STEP, object=step)
    kind = log.records()["kind"]
    times = np.where(kind == Kind.STREAM_SYNC, 2_000, 500)
    reads = np.flatnonzero(kind == Kind.ALLOC)
    times[reads] = 1_000 * 10 ** (np.arange(len(reads)) % 4)
    assert counted(LiveHostTimes(), log, times, cuts).tolist() == times.tolist()


def test_ranks_learn_from_each_other() -> None:
    """A rank whose host was disturbed takes what others took for the same."""
    log = steps(6)
    recurring = HostNoise()
    counted(LiveHostTimes(recurring), log, took(log), [])
    slow = counted(LiveHostTimes(recurring), log, 3 * took(log), list(range(1, 60)))
    assert slow[5] == 3 * took(log)[5]
    assert slow[11:19].max() < 1.5 * max(LAYER_NS)


def test_what_other_processes_cost_is_divided_out_by_pytorch_s_own_operators() -> None:
    """A product whose launch takes three times as long behind its allocation as on a machine alone."""
    log = LogBuilder()
    for step in range(12):
        for _ in range(50):
            log.record(Kind.ALLOC, op=f"op name={OPERATOR} in= out=", phase=Phase.FORWARD)
            log.record(
                Kind.WORK,
                work="gemm m=8 n=8 k=8 batch=1 a=bf16 b=bf16 d=bf16 compute=f32 transa=T transb=N beta=0 epilogue=none",
                op=f"op name={OPERATOR} in= out=",
                phase=Phase.FORWARD,
            )
        log.record(Kind.STEP, object=step)
    known = reference_ns()[KNOWN]
    is_launch = log.records()["kind"] == Kind.WORK
    alone = np.where(is_launch, round(known), 4_000)
    host = LiveHostTimes()
    result = counted(host, log, 3 * alone, list(range(1, len(alone), 7)))
    assert result[-100:-1].tolist() == pytest.approx(alone[-100:-1], rel=0.01)
    assert host.host_per_cpu == pytest.approx(1 / 3, rel=0.01)


def test_before_anything_can_recur_time_counts_as_it_comes() -> None:
    """The first step, with what hosts ordinarily lose in it; so the clock goes at that pace."""
    log = steps(1)
    host = LiveHostTimes(as_it_came=0.8)
    assert host.host_per_cpu == 0.8
    assert counted(host, log, took(log), []).tolist() == [round(0.8 * ns) for ns in took(log)]
    assert host.host_per_cpu == 0.8


def test_the_clock_goes_at_the_pace_of_late_and_an_interruption_is_none() -> None:
    """Half as fast where stretches take twice what they need; as before where one took a thousand times as long."""
    log = steps(40)
    host = LiveHostTimes()
    counted(host, log, took(log), [])
    assert host.host_per_cpu == pytest.approx(1.0)
    stalled = took(log)
    stalled[35] *= 1_000
    counted(host, log, stalled, [])
    assert host.host_per_cpu == pytest.approx(1.0, abs=0.05)
