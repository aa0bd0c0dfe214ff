"""Flows that share links: cases that can be worked out by hand, and what always holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.hardware.network import flow_kernels
from presim.hardware.network.flows import Flows, busiest_seconds, simulate
from presim.hardware.network.topology import Builder, Topology


def line(*bandwidths: float) -> Topology:
    """GPUs in a row; link 0 leads from the first to the second, and so on."""
    builder = Builder(len(bandwidths) + 1)
    for at, bandwidth in enumerate(bandwidths):
        builder.one_way(at, at + 1, bandwidth, 0.0)
    return builder.build(transit=True)


def flows(*each: tuple[list[int], float], start_s: list[float] | None = None) -> Flows:
    width = max(len(links) for links, _ in each)
    paths = np.array([links + [-1] * (width - len(links)) for links, _ in each], np.int64)
    starts = np.array(start_s or [0.0] * len(each))
    return Flows(paths, np.array([size for _, size in each]), starts, np.zeros(len(each), np.int64))


def test_two_flows_on_one_link_have_half_of_it_each() -> None:
    """100 and 300 bytes on 100 bytes/s: 50 each until 2 s, then 100 for the 200 that are left."""
    assert simulate(line(100), flows(([0], 100), ([0], 300))).end_s.tolist() == pytest.approx([2.0, 4.0])


def test_the_classical_line() -> None:
    """A long flow over both links, a short one on each: the narrow link fixes the long one's rate.

    Links of 10 and 30: the long flow and the first short one have 5, the second short one 25. Of 100 bytes each, the
    second short one ends at 4 s; the others go on with 5 until 20 s.
    """
    found = simulate(line(10, 30), flows(([0, 1], 100), ([0], 100), ([1], 100)))
    assert found.end_s.tolist() == pytest.approx([20.0, 20.0, 4.0])
    assert found.link_bytes.tolist() == [200.0, 200.0]


def test_a_flow_that_starts_later_takes_its_share_from_then_on() -> None:
    """Alone for 1 s, then half: 100 + 50 t = 200 at t = 2; the second has 100 by then and goes on alone."""
    found = simulate(line(100), flows(([0], 200), ([0], 200), start_s=[0.0, 1.0]))
    assert found.end_s.tolist() == pytest.approx([3.0, 4.0])


def test_flows_that_cannot_be_told_apart_are_one_class() -> None:
    one = simulate(line(100, 100), flows(*[([0], 10.0)] * 50, *[([1], 10.0)] * 50))
    assert one.classes == 1
    assert one.end_s.tolist() == pytest.approx([5.0] * 100)


def test_what_does_not_touch_a_change_is_not_solved_again() -> None:
    """Two links without common flows: an end on the first leaves the second as it is."""
    rate = np.zeros(2)
    csr = (np.array([0, 1, 2]), np.array([0, 1]), np.ones(2))
    touched = flow_kernels.fill(np.array([10.0, 20.0]), *csr, *csr, np.ones(2, np.int64), np.array([0]), rate)
    assert (touched, rate.tolist()) == (1, [10.0, 0.0])


BANDWIDTHS = st.lists(st.integers(1, 50), min_size=1, max_size=5)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], Flows]:
    bandwidths = draw(BANDWIDTHS)
    spans = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 200)), min_size=1, max_size=8))
    each = []
    for at, length, size in spans:
        first = at % len(bandwidths)
        each.append((list(range(first, min(first + length, len(bandwidths)))), float(size)))
    starts = draw(st.lists(st.integers(0, 5).map(float), min_size=len(each), max_size=len(each)))
    return bandwidths, flows(*each, start_s=starts)


@given(cases())
def test_bytes_are_conserved_and_no_link_carries_more_than_it_can(case: tuple[list[int], Flows]) -> None:
    bandwidths, sent = case
    topology = line(*bandwidths)
    found = simulate(topology, sent)
    assert found.link_bytes.sum() == pytest.approx(float((sent.bytes * (sent.paths >= 0).sum(axis=1)).sum()))
    assert found.utilisation(topology).max() <= 1 + 1e-9
    assert found.seconds >= busiest_seconds(topology, sent) * (1 - 1e-9)
    narrowest = np.array([min(bandwidths[link] for link in path if link >= 0) for path in sent.paths.tolist()])
    assert np.all(found.end_s - sent.start_s >= sent.bytes / narrowest * (1 - 1e-9))


@given(cases(), st.floats(1.0, 8.0))
def test_everything_with_more_bandwidth_is_done_sooner(case: tuple[list[int], Flows], factor: float) -> None:
    """In proportion where all starts together."""
    bandwidths, sent = case
    slow, fast = line(*bandwidths), line(*bandwidths).scaled(factor)
    assert simulate(fast, sent).seconds <= simulate(slow, sent).seconds * (1 + 1e-9)
    together = Flows(sent.paths, sent.bytes, np.zeros(len(sent.bytes)), sent.owner)
    assert simulate(fast, together).end_s * factor == pytest.approx(simulate(slow, together).end_s)


@given(cases())
def test_classes_answer_as_every_flow_by_itself(case: tuple[list[int], Flows]) -> None:
    """Owners of their own tell all flows apart."""
    bandwidths, sent = case
    apart = Flows(sent.paths, sent.bytes, sent.start_s, np.arange(len(sent.bytes)))
    assert simulate(line(*bandwidths), sent).end_s == pytest.approx(simulate(line(*bandwidths), apart).end_s)
