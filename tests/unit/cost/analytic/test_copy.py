"""Copies: links, pinning, and the device's own memory."""

from __future__ import annotations

import pytest

from presim import hardware
from presim.cost.analytic import copy
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.price import Price
from presim.trace.signatures import Copy

GIB = 1 << 30


@pytest.fixture
def h100() -> Device:
    return device_of(hardware.gpu("h100-sxm"))


def priced(device: Device, signature: Copy) -> Price:
    return copy.price([signature], device)[0]


def test_pinned_copies_take_most_of_the_link(h100: Device) -> None:
    rate = GIB / priced(h100, Copy("h2d", GIB, pinned=True)).duration_ns
    assert 50 < rate < 58  # GB/s of the 63 that PCIe 5 x16 carries; 55 is what bandwidthTest shows


def test_pageable_copies_are_slower_and_doubted(h100: Device) -> None:
    pinned, pageable = (priced(h100, Copy("d2h", GIB, pinned=pinned)) for pinned in (True, False))
    assert pageable.duration_ns > 2 * pinned.duration_ns
    assert pageable.uncertainty > pinned.uncertainty


def test_a_copy_within_the_device_reads_and_writes(h100: Device) -> None:
    copied, filled = (priced(h100, Copy(direction, GIB)).duration_ns for direction in ("d2d", "memset"))
    assert 1.8 < copied / filled < 2.2


def test_a_few_bytes_take_the_launch(h100: Device) -> None:
    price = priced(h100, Copy("d2h", 4, pinned=True))
    assert (price.duration_ns, price.bound) == (1_500, "latency")


def test_peers_without_nvlink_use_pcie() -> None:
    l40s, h100 = (device_of(hardware.gpu(name)) for name in ("l40s", "h100-sxm"))
    assert priced(l40s, Copy("peer", GIB)).duration_ns > 10 * priced(h100, Copy("peer", GIB)).duration_ns


def test_a_chip_to_chip_link_is_faster_than_pcie(h100: Device) -> None:
    grace = device_of(hardware.gpu("gb200"))
    upload = Copy("h2d", GIB, pinned=True)
    assert priced(grace, upload).duration_ns < priced(h100, upload).duration_ns / 3
