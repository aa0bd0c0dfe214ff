"""Hosts of captures and of clusters."""

from __future__ import annotations

import pytest

from presim.capture.script.host_probe import probe_ns
from presim.hardware.host import TYPICAL_PROBE_NS, host_factor


def test_a_machine_twice_as_fast_counts_its_time_twice() -> None:
    assert host_factor(TYPICAL_PROBE_NS) == 1
    assert host_factor(TYPICAL_PROBE_NS // 2) == 2


def test_without_a_probe_time_counts_as_it_was_captured() -> None:
    assert host_factor(0) == 1


@pytest.mark.parametrize(("probe", "factor"), [(1, 4.0), (10**9, 0.25)])
def test_what_no_cpu_can_be_is_not_believed(probe: int, factor: float) -> None:
    assert host_factor(probe) == factor


def test_the_probe_is_cpu_time_of_a_millisecond_or_so() -> None:
    assert 50_000 < probe_ns() < 20_000_000
