"""How much two pieces of work slow each other."""

from __future__ import annotations

import pytest

from presim.cost.overlap import NOTHING, Demand, added_time, table


def test_arithmetic_has_the_sms_that_are_left() -> None:
    """A quarter of the SMs held leaves three quarters: a third more time."""
    assert added_time(Demand(arithmetic=1.0), Demand(channels=0.25)) == pytest.approx(1 / 3)
    assert added_time(Demand(arithmetic=0.5), Demand(channels=0.25)) == pytest.approx(1 / 6)
    assert added_time(Demand(channels=0.25), Demand(arithmetic=1.0)) == 0


def test_bandwidth_is_shared_in_proportion_where_it_does_not_suffice() -> None:
    large, small = Demand(memory=1.0), Demand(memory=0.25)
    assert added_time(large, small) == added_time(small, large) == 0.25
    assert added_time(small, Demand(memory=0.75)) == 0


def test_two_collectives_on_one_wire_take_twice_as_long() -> None:
    assert added_time(Demand(port_out=1.0, port_in=1.0), Demand(port_out=1.0, port_in=1.0)) == 1.0


def test_opposite_directions_and_other_wires_do_not_meet() -> None:
    assert added_time(Demand(link_out=1.0), Demand(link_in=1.0)) == 0
    assert added_time(Demand(link_out=1.0), Demand(port_out=1.0)) == 0


def test_the_scarcest_resource_decides() -> None:
    one = Demand(memory=0.9, link_out=1.0)
    assert added_time(one, Demand(memory=0.2, link_out=0.5)) == 0.5


def test_work_that_asks_for_nothing_is_not_slowed() -> None:
    assert table([NOTHING, Demand(channels=1.0, memory=1.0)])[0] == [0.0, 0.0]
