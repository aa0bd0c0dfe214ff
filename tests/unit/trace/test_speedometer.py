"""How fast the machine was, by stretches within PyTorch's own operators; host time freed of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.trace import speedometer
from presim.trace.schema import Kind, Phase, Trace
from presim.trace.speedometer import Pace, alone, key, reference_ns, slowed, within
from support.products import KNOWN, PYTHON_NS, products

SLOWER = st.floats(1.0, 20.0)


def host_ns(trace: Trace) -> int:
    return int(trace.columns["host_ns"].sum())


@given(SLOWER)
def test_a_machine_that_is_slower_all_along_makes_no_difference(factor: float) -> None:
    quiet, slow = products([1.0] * 200), products([factor] * 200)
    after = alone(slow)
    assert abs(host_ns(after) / host_ns(quiet) - 1) < 1e-3
    assert slowed(slow, after) == pytest.approx(factor, rel=1e-3)


@given(SLOWER, SLOWER)
def test_neighbours_that_come_and_go_make_no_difference_but_where_they_came(first: float, second: float) -> None:
    """Two windows of a thousand products each; a window that has both goes by one of them."""
    trace = products([first] * 4096 + [second] * 4096, steps=1)
    after = alone(trace).columns["host_ns"].astype(np.int64)
    quiet = products([1.0] * 8192, steps=1).columns["host_ns"].astype(np.int64)
    third = 3 * 1024  # entries of 1024 products
    for part in (slice(0, 3 * third), slice(-3 * third, None)):
        assert np.abs(after[part] - quiet[part]).max() <= 2 + 1e-3 * PYTHON_NS


def test_the_first_step_goes_by_the_pace_of_those_that_follow() -> None:
    trace = products([2.0] * 200, steps=3)
    column = trace.columns["host_ns"].astype(np.int64)
    first = trace.steps()[0]
    column[first] *= 3
    after = alone(dataclasses.replace(trace, columns={**trace.columns, "host_ns": column})).columns["host_ns"]
    quiet = products([1.0] * 200, steps=3).columns["host_ns"]
    assert np.abs(after[first].astype(np.int64) - 3 * quiet[first].astype(np.int64)).max() <= 3


def test_a_program_that_takes_less_keeps_its_time() -> None:
    trace = products([0.5] * 200)
    assert alone(trace).columns["host_ns"].tolist() == trace.columns["host_ns"].tolist()


def test_a_trace_without_known_stretches_or_of_an_unknown_host_is_left_alone() -> None:
    for trace in (
        products([3.0] * 10),
        products([3.0] * 200, operator="te::gemm"),
        products([3.0] * 200, reference_host=False),
    ):
        assert alone(trace) is trace
        assert slowed(trace, alone(trace)) is None


def test_a_stretch_of_recomputation_is_one_of_a_forward_pass() -> None:
    assert key(Kind.ALLOC, "aten::mm", Phase.RECOMPUTE) == KNOWN


def test_what_lies_between_two_operators_is_no_stretch() -> None:
    trace = products([1.0] * 5, steps=1)
    entries, names, which, times = within(trace)
    assert names == [KNOWN]
    assert which.tolist() == [0] * 5
    assert (trace.columns["kind"][entries] == Kind.WORK).all()
    assert times.tolist() == [round(reference_ns()[KNOWN])] * 5


@given(SLOWER)
def test_the_pace_of_what_comes_in_is_that_of_the_last_window(factor: float) -> None:
    pace = Pace()
    assert pace.slowdown == 1.0
    for _ in range(1000):
        pace.add(KNOWN, round(7 * reference_ns()[KNOWN]))
        pace.add("ALLOC aten::of_tomorrow FORWARD", 1)
    assert abs(pace.slowdown - 7) < 0.01
    for _ in range(speedometer._WINDOW):
        pace.add(KNOWN, round(factor * reference_ns()[KNOWN]))
    assert abs(pace.slowdown - factor) < 0.01


def test_the_table_is_of_operators_of_pytorch_and_times_that_a_call_can_take() -> None:
    table = reference_ns()
    assert len(table) > 30
    for name, ns in table.items():
        kind, operator, phase = name.split(" ")
        assert name == key(Kind[kind], operator, Phase[phase])
        assert operator.startswith("aten::")
        assert 100 < ns < 30_000
