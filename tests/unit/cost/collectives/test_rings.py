"""Rings through a mesh of links."""

from __future__ import annotations

import pytest

from presim import hardware
from presim.cost.collectives.rings import count_rings

LINKS = hardware.node("dgx-v100").links


@pytest.mark.parametrize(("gpus", "rings"), [(2, 1), (3, 2), (4, 4), (6, 2), (7, 4), (8, 6)])
def test_a_cube_of_v100_has_the_rings_that_its_measured_bandwidth_shows(gpus: int, rings: int) -> None:
    """23 GB/s a ring: 23, 45, 86, 46, 88, 136 GB/s of bus bandwidth on the first 2, 3, 4, 6, 7, 8 (vTrain f8dda84)."""
    assert count_rings(LINKS, tuple(range(gpus))) == rings


def test_no_ring_passes_a_gpu_with_one_neighbour() -> None:
    assert count_rings(LINKS, tuple(range(5))) == 0


def test_pairs_have_one_ring_per_link() -> None:
    assert [count_rings(LINKS, (0, other)) for other in (1, 3, 5)] == [1, 2, 0]


def test_a_complete_mesh_has_two_rings_per_cycle() -> None:
    complete = tuple(tuple(int(one != other) for other in range(5)) for one in range(5))
    assert count_rings(complete, tuple(range(5))) == 4


def test_without_a_mesh_there_are_no_rings() -> None:
    assert count_rings((), ()) == 0
    assert count_rings(LINKS, (0,)) == 0
    assert count_rings(LINKS, (0, 8)) == 0
