"""Hosts of captures and of clusters."""

from __future__ import annotations

import pytest

from presim.hardware.host import ORDINARY, REFERENCE_PROBE_NS, TYPICAL_FACTOR, host_factor


def test_time_of_the_reference_host_is_scaled_to_the_server_s() -> None:
    assert host_factor(reference_host=True, server=1.9) == 1.9
    assert host_factor(reference_host=True) == TYPICAL_FACTOR


def test_of_older_captures_a_machine_twice_as_fast_counts_its_time_twice() -> None:
    assert host_factor(False, REFERENCE_PROBE_NS) == pytest.approx(TYPICAL_FACTOR / ORDINARY, rel=1e-3)
    assert host_factor(False, REFERENCE_PROBE_NS // 2) == pytest.approx(2 * TYPICAL_FACTOR / ORDINARY, rel=1e-3)


def test_time_as_it_comes_has_more_in_it_and_counts_less() -> None:
    assert host_factor(True, server=1.9, undisturbed=False) == pytest.approx(1.9 / ORDINARY, rel=1e-3)
    assert host_factor(True, undisturbed=False) == pytest.approx(TYPICAL_FACTOR / ORDINARY, rel=1e-3)


def test_without_either_time_counts_as_it_is() -> None:
    assert host_factor(False) == 1


@pytest.mark.parametrize(("probe", "factor"), [(1, 4.0), (10**9, 0.25)])
def test_impossible_cpu_speeds_are_ignored(probe: int, factor: float) -> None:
    assert host_factor(False, probe) == factor
