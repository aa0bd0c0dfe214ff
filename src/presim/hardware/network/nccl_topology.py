"""Reader of NCCL's and RCCL's topologies (NCCL_TOPO_DUMP_FILE): PCIe, NVLink and Infinity Fabric of one node.

Names of elements and attributes: NVIDIA/nccl, src/graph/xml.cc and topo.cc at 5067397c; ROCm/rccl,
tools/topo_expl/models at 0cbce2a7. Such a file has no rates of links. NVLink's are those of the GPU's generation,
Infinity Fabric's those of AMD's data sheets (GB/s both ways: MI50 and MI100 92, MI250X 100, MI300X 128, MI350X 153.6).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.hardware.network.topology import Builder, Topology
from presim.system.files import FormatError, decode_xml

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_NVLINK_BPS = ((100, 50e9), (90, 25e9), (86, 14.0625e9), (70, 25e9), (60, 20e9))  # from a compute capability on
_INFINITY_BPS = (("950", 76.8e9), ("94", 64e9), ("90a", 50e9), ("910", 50e9), ("90", 46e9))  # by part of `gcn`
_SWITCH_CLASS = "0x0680"  # of PCI: a bridge, as NVSwitches are
_GPU_CLASSES = ("0x03", "0x12")  # display controllers and processing accelerators
_LANES, _GTps = 16.0, 16.0  # of PCIe devices that state none, as virtual machines do
_PCIE_SHARE = 0.9  # of the raw rate, for packet headers
_SOCKETS_BPS, _SOCKETS_NS = 15e9, 1000.0
_LINK_NS, _PCIE_NS = 500.0, 500.0


def nccl(text: str) -> Topology:
    """The topology of an XML file: PCIe bridges with GPUs and NICs below CPUs, and links between GPUs or to a switch.

    Raises:
        InputError: the file is no complete topology of NCCL's or RCCL's.
    """
    system = _system(text)
    gpus = sorted(system.iter("gpu"), key=lambda gpu: int(gpu.get("rank", gpu.get("dev", "0"))))
    gpu_by_element = {id(gpu): number for number, gpu in enumerate(gpus)}
    builder = Builder(len(gpus))
    cpus = list(system.iter("cpu"))
    for number, cpu in enumerate(cpus):
        host = builder.vertex(f"cpu{number}")
        for child in cpu:
            _add_pci(builder, child, host, gpu_by_element)
    for cpu_index, other_index in itertools.combinations(range(len(cpus)), 2):
        builder.both_ways(
            builder.vertex(f"cpu{cpu_index}"), builder.vertex(f"cpu{other_index}"), _SOCKETS_BPS, _SOCKETS_NS
        )
    _add_links(builder, gpus, _gpu_by_address(system, gpu_by_element))
    return builder.build(gpus_per_node=len(gpus))


def _system(text: str) -> Element:
    try:
        system = decode_xml(text)
    except FormatError as error:
        raise InputError(f"the file is not valid XML ({error}); dump it again with NCCL_TOPO_DUMP_FILE") from error
    if system.tag != "system":
        raise InputError(
            f"the file's root is <{system.tag}>, and that of NCCL's topologies <system>; name the file that "
            "NCCL_TOPO_DUMP_FILE wrote"
        )
    if next(system.iter("gpu"), None) is None:
        count = sum(device.get("class", "").startswith(_GPU_CLASSES) for device in system.iter("pci"))
        raise InputError(
            f"the file lists {count} GPUs by their PCI class only, and none of their links, which NCCL detects when it "
            "starts; name the file that NCCL_TOPO_DUMP_FILE writes there, or describe the node in a cluster file"
        )
    return system


def _gpu_by_address(system: Element, gpu_by_element: Mapping[int, int]) -> dict[str, int]:
    """GPUs by the bus address of their device, to which links of other GPUs refer."""
    return {
        device.get("busid", "").lower(): gpu_by_element[id(gpu)]
        for device in system.iter("pci")
        if (gpu := device.find("gpu")) is not None
    }


def _add_links(builder: Builder, gpus: list[Element], gpu_by_address: Mapping[str, int]) -> None:
    """NVLinks to the switch, and links between two GPUs, which either or both of them list."""
    link_Bps: dict[tuple[int, int], float] = {}
    for number, gpu in enumerate(gpus):
        for link in itertools.chain(gpu.iter("nvlink"), gpu.iter("xgmi")):
            Bps = int(link.get("count", "1")) * _rate_Bps(gpu, link)
            other = gpu_by_address.get(link.get("target", "").lower(), number)
            if link.get("tclass", "").startswith(_SWITCH_CLASS):
                builder.both_ways(number, builder.vertex("nvswitch"), Bps, _LINK_NS)
            elif other != number:
                link_Bps[min(number, other), max(number, other)] = Bps
    for (number, other), Bps in sorted(link_Bps.items()):
        builder.both_ways(number, other, Bps, _LINK_NS)


def _rate_Bps(gpu: Element, link: Element) -> float:
    """One link in one direction."""
    if link.tag == "xgmi":
        name = gpu.get("gcn", "").lower()
        rate = next((Bps for part, Bps in _INFINITY_BPS if part in name), None)
        if rate is None:
            raise InputError(
                f"the rate of Infinity Fabric on a GPU with gcn = {name!r} is not known; describe the node in a "
                "cluster file"
            )
        return rate
    capability = int(gpu.get("sm", "80"))
    return next((Bps for least, Bps in _NVLINK_BPS if capability >= least), _NVLINK_BPS[-1][1])


def _add_pci(builder: Builder, element: Element, above: int, gpu_by_element: Mapping[int, int]) -> None:
    """A device, or a switch with devices below it."""
    if element.tag != "pci":
        return
    lanes, GTps = _figure(element, "link_width", _LANES), _figure(element, "link_speed", _GTps)
    Bps = lanes * GTps / 8 * 1e9 * _PCIE_SHARE
    gpu = element.find("gpu")
    if gpu is not None:
        gpu_port = builder.vertex(f"pci.gpu{gpu_by_element[id(gpu)]}")  # so that the NVLink switch is closer
        builder.both_ways(gpu_by_element[id(gpu)], gpu_port, Bps, 0.0)
        builder.both_ways(gpu_port, above, Bps, _PCIE_NS)
        return
    name = f"pci.{element.get('busid', 'unknown')}"
    vertex = builder.vertex(f"{name}.nic" if element.find("nic") is not None else name)
    builder.both_ways(vertex, above, Bps, _PCIE_NS)
    for child in element:
        _add_pci(builder, child, vertex, gpu_by_element)


def _figure(element: Element, name: str, default: float) -> float:
    """The number at the head of an attribute; the default where it has none, or none above zero."""
    words = element.get(name, "").split()
    try:
        number = float(words[0]) if words else 0.0
    except ValueError:  # "Unknown speed"
        return default
    return number if 0 < number < 1e6 else default
