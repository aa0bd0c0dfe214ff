"""NCCL_GRAPH_FILE and NCCL_TOPO_FILE: channels, or links, that NCCL takes from a file instead of looking itself.

Names of elements and attributes, and the rates of links: NVIDIA/nccl, src/graph/search.cc, xml.cc and topo.h at
5067397c. Such files are often only on the cluster's nodes; one that is not here has no effect, and is named.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from presim.errors import InputError
from presim.system.files import FormatError, decode_xml, read_text

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

FILES = ("NCCL_GRAPH_FILE", "NCCL_TOPO_FILE")
_RING = "0"  # id of the graph of rings
_LINK_GBps = ((100, 40.1), (90, 20.6), (86, 12.0), (70, 20.0), (60, 18.0))  # one NVLink, from a compute capability on
_MBIT_GBps = 1 / 8000
_MOST_CHANNELS = 64


@dataclasses.dataclass(frozen=True)
class GraphFile:
    """The rings of a graph file."""

    channels: int
    inside_GBps: float  # of a channel, up to two nodes
    between_GBps: float  # of a channel, with more nodes
    gpus: int  # of one node


@dataclasses.dataclass(frozen=True)
class TopologyFile:
    """The links of a node in a topology file."""

    gpus: int
    link_GBps: float  # NVLinks of the GPU with fewest, as NCCL counts them; 0: none
    ports: int  # of the network that collectives use; 0: none is listed
    port_GBps: float  # of the slowest of them


def absent_files(environment: Mapping[str, str]) -> list[str]:
    """Variables that name a file which is not on this machine."""
    return [name for name in FILES if environment.get(name) and not Path(environment[name]).is_file()]


def file_effect(name: str, path: str) -> str:
    """Why a file changes nothing, for a table; empty: it has an effect, or the variable names no file.

    Raises:
        InputError: the file is no topology of NCCL's.
    """
    if absent_files({name: path}):
        return "not modelled, as the file is not on this machine"
    topology = topology_file({name: path})
    if topology is not None and not topology.link_GBps and not topology.ports:
        return "without effect: the file lists neither NVLinks nor ports, which NCCL detects when it starts"
    return ""


def graph_file(environment: Mapping[str, str]) -> GraphFile | None:
    """The rings of NCCL_GRAPH_FILE; None without it.

    Raises:
        InputError: the file is no graph of NCCL's.
    """
    path = environment.get("NCCL_GRAPH_FILE", "")
    return _read_graph(path) if path and Path(path).is_file() else None


def topology_file(environment: Mapping[str, str]) -> TopologyFile | None:
    """The links of NCCL_TOPO_FILE; None without it.

    Raises:
        InputError: the file is no topology of NCCL's.
    """
    path = environment.get("NCCL_TOPO_FILE", "")
    return _read_topology(path) if path and Path(path).is_file() else None


@functools.lru_cache(maxsize=16)
def _read_graph(path: str) -> GraphFile:
    root = _root("NCCL_GRAPH_FILE", path, "graphs")
    ring = next((graph for graph in root.iter("graph") if graph.get("id") == _RING), None)
    if ring is None:
        raise InputError(f"NCCL_GRAPH_FILE={path}: it has no graph with id 0, the rings; dump it again")
    channels = int(_number(ring, "nchannels", path))
    if not 1 <= channels <= _MOST_CHANNELS:
        raise InputError(
            f"NCCL_GRAPH_FILE={path}: nchannels = {channels} is not from 1 to {_MOST_CHANNELS}; correct it"
        )
    first = ring.find("channel")
    gpus = len(first.findall("gpu")) if first is not None else 0
    inside, between = (_number(ring, name, path) for name in ("speedintra", "speedinter"))
    if not gpus or min(inside, between) <= 0:
        raise InputError(f"NCCL_GRAPH_FILE={path}: its rings have no GPUs, or no speed; dump it again")
    return GraphFile(channels, inside, between, gpus)


@functools.lru_cache(maxsize=16)
def _read_topology(path: str) -> TopologyFile:
    root = _root("NCCL_TOPO_FILE", path, "system")
    gpus = list(root.iter("gpu"))
    links = [_links_GBps(gpu, path) for gpu in gpus]
    ports, port_GBps = _used_ports(
        [_number(net, "speed", path) * _MBIT_GBps for net in root.iter("net") if net.get("speed")]
    )
    return TopologyFile(len(gpus), min(links, default=0.0), ports, port_GBps)


def _used_ports(port_GBps: list[float]) -> tuple[int, float]:
    """Number and rate of the ports that carry most together: NCCL's search leaves those for management out."""
    rates = sorted(port_GBps, reverse=True)
    totals = [(count * GBps, count, GBps) for count, GBps in enumerate(rates, 1)]
    return max(totals)[1:] if totals else (0, 0.0)


def _links_GBps(gpu: Element, path: str) -> float:
    counts = [_number(link, "count", path) for link in gpu.iter("nvlink")]
    if not counts:
        return 0.0
    capability = _number(gpu, "sm", path)
    return sum(counts) * next((GBps for least, GBps in _LINK_GBps if capability >= least), 0.0)


def _root(name: str, path: str, tag: str) -> Element:
    try:
        root = decode_xml(read_text(path, "name a file that NCCL dumped"))
    except FormatError as error:
        raise InputError(f"{name}={path}: the file is not XML ({error}); dump it again") from error
    if root.tag != tag:
        raise InputError(f"{name}={path}: its root is <{root.tag}>, and NCCL's has <{tag}>; dump it again")
    return root


def _number(element: Element, name: str, path: str) -> float:
    text = element.get(name, "")
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise InputError(f"{path}: <{element.tag} {name}={text!r}> is no positive number; correct it")
    return number
