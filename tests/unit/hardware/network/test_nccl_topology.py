"""Topologies that NCCL and RCCL dump: links between GPUs, and files that are none or lack them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from presim.errors import InputError
from presim.hardware.network.exchange import Exchange, run
from presim.hardware.network.nccl_topology import nccl
from presim.hardware.network.topology import Topology

_BYTES = 10**9


def device(number: int, gpu: str, links: str, *, width: str = "16", speed: str = "16.0 GT/s PCIe") -> str:
    return (
        f'<pci busid="0000:{number:02X}:00.0" class="0x030200" link_speed="{speed}" link_width="{width}">'
        f'<gpu dev="{number}" rank="{number}" {gpu}>{links}</gpu></pci>'
    )


def system(*devices: str) -> str:
    return f'<system version="1"><cpu numaid="0">{"".join(devices)}</cpu></system>'


def links(tag: str, count_by_target: Mapping[int, int], tclass: str) -> str:
    return "".join(
        f'<{tag} target="0000:{target:02x}:00.0" count="{count}" tclass="{tclass}"/>'
        for target, count in count_by_target.items()
    )


def GBps(topology: Topology, sender: int, receiver: int) -> float:
    outcome = run(topology, [Exchange("send", _BYTES, (sender, receiver))])
    assert outcome.shared is not None
    return _BYTES / outcome.shared.seconds * 1e-9


@pytest.mark.parametrize(
    ("gcn", "expected_GBps"), [("gfx942", 64), ("gfx950", 76.8), ("gfx90a", 50), ("910", 50), ("908", 46), ("906", 46)]
)
def test_infinity_fabric_links_two_gpus_directly(gcn: str, expected_GBps: float) -> None:
    peers = [links("xgmi", {other: 1 for other in range(4) if other != number}, "0x120000") for number in range(4)]
    topology = nccl(system(*(device(number, f'gcn="{gcn}"', text) for number, text in enumerate(peers))))
    assert GBps(topology, 0, 3) == pytest.approx(expected_GBps)


@pytest.mark.parametrize(("sm", "link_GBps"), [(60, 20), (70, 25), (80, 25), (86, 14.0625), (90, 25), (100, 50)])
def test_nvlinks_between_two_gpus_have_the_rate_of_their_generation(sm: int, link_GBps: float) -> None:
    """Either GPU may list the links; a GPU's links to itself, as virtual machines list them, are none."""
    first = device(0, f'sm="{sm}"', links("nvlink", {1: 2, 0: 12}, "0x030200"))
    topology = nccl(system(first, device(1, f'sm="{sm}"', "")))
    assert GBps(topology, 0, 1) == pytest.approx(2 * link_GBps)


def test_nvlink_5_to_a_switch() -> None:
    text = '<nvlink target="fffffff" count="18" tclass="0x068000"/>'
    assert GBps(nccl(system(*(device(number, 'sm="100"', text) for number in range(3)))), 0, 2) == pytest.approx(900)


@pytest.mark.parametrize(("width", "speed"), [("0", ""), ("", "Unknown speed"), ("16", "16.0 GT/s PCIe")])
def test_a_device_that_states_no_pcie_has_sixteen_lanes(width: str, speed: str) -> None:
    devices = (device(number, 'sm="80"', "", width=width, speed=speed) for number in range(2))
    assert GBps(nccl(system(*devices)), 0, 1) == pytest.approx(28.8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<graphs><gpu/></graphs>", "the file's root is <graphs>, and that of NCCL's topologies <system>"),
        (
            system('<pci class="0x030200"/>', '<pci class="0x020700"/>', '<pci class="0x030200"/>'),
            "the file lists 2 GPUs by their PCI class only, and none of their links",
        ),
        (
            system(device(0, 'gcn="gfx1100"', links("xgmi", {1: 1}, "0x120000"))),
            "the rate of Infinity Fabric on a GPU with gcn = 'gfx1100' is not known",
        ),
        ("<system", "the file is not valid XML"),
    ],
)
def test_files_without_links_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nccl(text)
