"""Transfers that share links: cases that can be worked out by hand, and what always holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.hardware.network.sharing import LinkTraffic, shared_seconds


def load(*link_bytes: float, flow_bytes: float = 100.0, alone_s: float = 1.0) -> LinkTraffic:
    return LinkTraffic(np.array(link_bytes, float), flow_bytes, alone_s)


def test_alone_a_transfer_takes_what_it_takes() -> None:
    assert shared_seconds(np.array([50.0]), [load(100, alone_s=2.5)]) == [2.5]


def test_two_equal_transfers_have_half_of_a_link_each() -> None:
    """100 bytes on 100 bytes/s in 1 s, so 2 s beside each other."""
    assert shared_seconds(np.array([100.0]), [load(100), load(100)]) == pytest.approx([2, 2])


def test_a_slow_transfer_leaves_what_it_cannot_use() -> None:
    """One asks for 20 bytes/s for reasons of its own; the other has the 80 that are left, instead of 100."""
    slow, quick = shared_seconds(np.array([100.0]), [load(100, alone_s=5.0), load(100)])
    assert (slow, quick) == pytest.approx((5.0, 1.25))


def test_flows_have_equal_shares_and_transfers_have_those_of_their_flows() -> None:
    """Three flows of 100 bytes beside one: a quarter of 100 bytes/s each, so 4 s for both; alone 3 s and 1 s."""
    both = shared_seconds(np.array([100.0]), [load(300, alone_s=3.0), load(100)])
    assert both == pytest.approx([4.0, 4.0])


def test_the_classical_line() -> None:
    """Links of 10 and 30 bytes/s: the long transfer and the first short one have 5, the second short one 25."""
    loads = [load(100, 100, alone_s=10.0), load(100, 0, alone_s=10.0), load(0, 100, alone_s=100 / 30)]
    assert shared_seconds(np.array([10.0, 30.0]), loads) == pytest.approx([20.0, 20.0, 4.0])


def test_transfers_without_a_common_link_do_not_slow_each_other() -> None:
    assert shared_seconds(np.array([100.0, 100.0]), [load(100, 0), load(0, 100)]) == pytest.approx([1, 1])


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[float], list[LinkTraffic]]:
    """Transfers that take no less alone than their links allow."""
    bandwidths = draw(st.lists(st.integers(1, 50).map(float), min_size=1, max_size=5))
    loads = []
    for _ in range(draw(st.integers(1, 6))):
        flows = draw(st.lists(st.integers(0, 4), min_size=len(bandwidths), max_size=len(bandwidths)))
        size, slower = draw(st.integers(1, 200)), draw(st.floats(1.0, 4.0))
        sent = np.array(flows, float) * size
        loads.append(LinkTraffic(sent, float(size), max(float((sent / bandwidths).max()), 0.01) * slower))
    return bandwidths, loads


@given(cases())
def test_no_link_carries_more_than_it_can_and_nothing_is_faster_than_alone(
    case: tuple[list[float], list[LinkTraffic]],
) -> None:
    """And every transfer that is slower than alone is on a full link: nothing is left over that it could use."""
    bandwidths, loads = np.array(case[0]), case[1]
    took = np.array(shared_seconds(bandwidths, loads))
    alone = np.array([one.alone_s for one in loads])
    sent = np.array([one.link_bytes for one in loads])
    carried = (sent / took[:, None]).sum(axis=0)
    assert np.all(carried <= bandwidths * (1 + 1e-6))
    assert np.all(took >= alone * (1 - 1e-9))
    is_full = carried >= bandwidths * (1 - 1e-6)
    assert all((sent[at, is_full] > 0).any() for at in np.flatnonzero(took > alone * (1 + 1e-6)))


@given(cases(), st.floats(1.0, 8.0))
def test_in_a_network_that_is_faster_throughout_all_is_done_sooner_in_proportion(
    case: tuple[list[float], list[LinkTraffic]], factor: float
) -> None:
    bandwidths, loads = np.array(case[0]), case[1]
    quicker = [LinkTraffic(one.link_bytes, one.flow_bytes, one.alone_s / factor) for one in loads]
    before, after = shared_seconds(bandwidths, loads), shared_seconds(bandwidths * factor, quicker)
    assert np.array(after) * factor == pytest.approx(np.array(before))


@given(cases(), st.integers(0, 4), st.floats(1.0, 8.0))
def test_more_bandwidth_anywhere_does_not_slow_the_slowest_flow(
    case: tuple[list[float], list[LinkTraffic]], link: int, factor: float
) -> None:
    """Others may become slower, as in any max-min fair network: the slowest then takes more of another link."""
    bandwidths, loads = np.array(case[0]), case[1]
    more = bandwidths.copy()
    more[link % len(more)] *= factor
    size = np.array([one.flow_bytes for one in loads])
    before, after = (float((size / shared_seconds(each, loads)).min()) for each in (bandwidths, more))
    assert after >= before * (1 - 1e-9)


@given(cases())
def test_the_order_of_transfers_does_not_matter(case: tuple[list[float], list[LinkTraffic]]) -> None:
    bandwidths, loads = np.array(case[0]), case[1]
    backwards = shared_seconds(bandwidths, loads[::-1])[::-1]
    assert backwards == pytest.approx(shared_seconds(bandwidths, loads))
