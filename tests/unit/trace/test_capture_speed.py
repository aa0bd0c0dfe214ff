"""How fast the machine was, by stretches of host work that are known; host time freed of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.trace import capture_speed
from presim.trace.capture_speed import (
    CaptureSpeed,
    key,
    on_idle_machine,
    reference_ns,
    slowdown_between,
    stretches,
    without_slowdown,
)
from presim.trace.schema import Kind, Phase, Trace
from support.products import KNOWN, OPERATOR, PYTHON_NS, products

SLOWER = st.floats(1.0, 20.0)


def host_ns(trace: Trace) -> int:
    return int(trace.columns["host_ns"].sum())


@given(SLOWER)
@settings(max_examples=20)
def test_a_machine_that_is_slower_all_along_makes_no_difference(factor: float) -> None:
    quiet, slow = products([1.0] * 200), products([factor] * 200)
    after = on_idle_machine(slow)
    assert abs(host_ns(after) / host_ns(quiet) - 1) < 1e-3
    assert slowdown_between(slow, after) == pytest.approx(factor, rel=1e-3)


@given(SLOWER, SLOWER)
@settings(max_examples=10)
def test_neighbours_that_come_and_go_make_no_difference_but_where_they_came(first: float, second: float) -> None:
    """Two windows of a thousand products each; a window that has both goes by one of them."""
    trace = products([first] * 4096 + [second] * 4096, steps=1)
    after = on_idle_machine(trace).columns["host_ns"].astype(np.int64)
    quiet = products([1.0] * 8192, steps=1).columns["host_ns"].astype(np.int64)
    third = 3 * 1024  # entries of 1024 products
    for part in (slice(0, 3 * third), slice(-3 * third, None)):
        assert np.abs(after[part] - quiet[part]).max() <= 2 + 1e-3 * PYTHON_NS


def test_the_first_step_goes_by_the_pace_of_those_that_follow() -> None:
    trace = products([2.0] * 200, steps=3)
    column = trace.columns["host_ns"].astype(np.int64)
    first = trace.steps()[0]
    column[first] *= 3
    after = on_idle_machine(dataclasses.replace(trace, columns={**trace.columns, "host_ns": column})).columns["host_ns"]
    quiet = products([1.0] * 200, steps=3).columns["host_ns"]
    assert np.abs(after[first].astype(np.int64) - 3 * quiet[first].astype(np.int64)).max() <= 3


def test_a_program_of_which_operators_are_known_only_keeps_its_time_where_that_is_less() -> None:
    """Little of its host time is within them, and so little is taken for the machine's."""
    trace = products([0.5] * 200, python_ns=200_000)
    assert host_ns(on_idle_machine(trace)) == pytest.approx(host_ns(trace), rel=0.01)
    assert host_ns(on_idle_machine(products([2.0] * 200, python_ns=200_000))) == pytest.approx(
        2 * host_ns(trace), rel=0.01
    )


@given(st.lists(st.integers(0, 10**9), min_size=1), st.floats(0.5, 5.0))
def test_of_a_long_stretch_the_first_half_millisecond_goes_by_the_pace(host_ns: list[int], pace: float) -> None:
    """Shorter ones whole; so no longer stretch comes out shorter than a shorter one."""
    came = np.sort(np.array(host_ns, np.int64))
    after = without_slowdown(came, pace)
    short = came <= 500_000
    assert np.abs(after[short] - came[short] / pace).max(initial=0) <= 0.5
    assert np.abs(after[~short] - (came[~short] - 500_000 + 500_000 / pace)).max(initial=0) <= 0.5
    assert (np.diff(after) >= 0).all()
    assert without_slowdown(came, 1.0).tolist() == came.tolist()


@given(st.floats(0.5, 5.0))
@settings(max_examples=20)
def test_a_program_that_is_known_goes_by_its_own_pace_whichever_way(factor: float) -> None:
    """With a thousand nanoseconds of Python for a product, most of its host time is within the operator."""
    quiet, other = (products([pace] * 1100, steps=3, python_ns=1000) for pace in (1.0, factor))
    assert host_ns(on_idle_machine(other)) / host_ns(quiet) == pytest.approx(1, rel=5e-3)


def test_a_stretch_that_the_program_does_otherwise_shows() -> None:
    """The pace is that of most of the time, so that what one part of a program gains is its own."""
    trace = products([1.0] * 500, steps=2, python_ns=1000)
    column = trace.columns["host_ns"].astype(np.int64)
    column[trace.mask(Kind.ALLOC)] //= 2
    faster = on_idle_machine(dataclasses.replace(trace, columns={**trace.columns, "host_ns": column}))
    assert host_ns(faster) == pytest.approx(int(column.sum()), rel=1e-3)


def test_a_trace_without_known_stretches_or_of_an_unknown_host_is_left_alone() -> None:
    for trace in (
        products([3.0] * 10),
        products([3.0] * 200, operator="te::gemm_of_tomorrow"),
        products([3.0] * 200, reference_host=False),
    ):
        assert on_idle_machine(trace) is trace
        assert slowdown_between(trace, on_idle_machine(trace)) is None


def test_recomputing_is_the_code_of_a_forward_pass_and_layers_are_alike() -> None:
    assert key(Kind.ALLOC, OPERATOR, Kind.WORK, OPERATOR, Phase.RECOMPUTE) == KNOWN
    first, other = (
        key(Kind.WORK, "aten::add", Kind.ALLOC, "aten::mm", Phase.FORWARD, f"model.layers.{layer}.mlp.up")
        for layer in (0, 13)
    )
    assert first == other == "WORK aten::add > ALLOC aten::mm FORWARD mlp.up"


def test_stretches_are_between_entries_that_tag_no_block() -> None:
    trace = products([1.0] * 5, steps=1)
    entries, names, which, times = stretches(trace)
    assert len(entries) == len(times) == len(trace) - 1
    assert times.sum() == host_ns(trace) - trace.columns["host_ns"][0]
    product = names.index(KNOWN)
    assert (trace.columns["kind"][entries[which == product]] == Kind.WORK).all()
    assert times[which == product].tolist() == [round(reference_ns()[KNOWN])] * 5


@given(SLOWER)
def test_the_slowdown_of_a_running_rank_comes_from_the_last_window(factor: float) -> None:
    pace = CaptureSpeed()
    assert pace.slowdown == 1.0
    pace.add(np.full(capture_speed._WINDOW, 7000), np.full(capture_speed._WINDOW, 1000.0))
    pace.add(np.full(10, 1), np.zeros(10))
    assert pace.slowdown == 7
    for _ in range(capture_speed._WINDOW // 256):
        pace.add(np.full(256, round(factor * 10_000)), np.full(256, 10_000.0))
    assert pace.slowdown == pytest.approx(factor, rel=1e-4)


@pytest.mark.parametrize(
    ("python_ns", "known_ns", "times", "pace"),
    [
        (1_000_000, 600, 3000, 1.0),  # next to nothing is known of its time
        (1800, 600, 3000, 0.6**0.5),
        (100, 600, 3000, 0.6),
        (100, 600, 256, 0.6**0.125),  # by few
        (1, 5, 3000, 0.5),  # what no machine does
    ],
)
def test_the_pace_of_what_comes_in_is_below_1_as_far_as_it_is_known(
    python_ns: int, known_ns: int, times: int, pace: float
) -> None:
    came = CaptureSpeed()
    came.add(np.tile([python_ns, known_ns], times), np.tile([0.0, 1000.0], times))
    assert came.slowdown == pytest.approx(pace, abs=2e-3)


def test_the_table_is_of_times_that_host_work_can_take() -> None:
    table = reference_ns()
    assert len(table) > 1000
    assert min(table.values()) >= 250
    within = [name for name in table if " > " not in name]
    assert len(within) > 30
    for name in within:
        kind, operator, phase = name.split(" ")
        assert name == key(Kind[kind], operator, Kind.WORK, operator, Phase[phase])
        assert operator.startswith("aten::")
        assert table[name] < 30_000
