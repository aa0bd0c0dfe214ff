"""A network as vertices and directed links; routes and flows are computed on it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_MOST_GPUS = 1 << 18
MOST_VERTICES = 1 << 20  # with switches
MOST_LINKS = 10_000_000


@dataclasses.dataclass(frozen=True)
class Topology:
    """Vertices 0 to ``gpus - 1`` are GPUs by global rank; the others are switches and NICs."""

    gpus: int
    names: tuple[str, ...]  # by vertex
    source: Ints  # by link: vertex
    target: Ints
    bandwidth_Bps: Floats
    latency_ns: Floats
    transit: bool = False  # GPUs forward traffic of others (rings and meshes without switches)
    gpus_per_node: int = 0  # 0: unknown
    relay: bool = False  # a GPU sends through the GPU of its node that is on the receiver's rail (NCCL's PXN)
    seed: int = 0  # seed of the choice among shortest paths

    @property
    def links(self) -> int:
        """Directed links."""
        return len(self.source)

    def link_name(self, link: int) -> str:
        """``from -> to``."""
        return f"{self.names[int(self.source[link])]} -> {self.names[int(self.target[link])]}"

    def within_nodes(self) -> NDArray[np.bool_]:
        """Mask of links at a GPU or NIC, or within a node; all others belong to the fabric."""
        node = np.array([name.split(".")[0] if name.startswith("node") else name for name in self.names])
        is_edge = np.array([name.startswith("gpu") or ".nic" in name for name in self.names])
        result: NDArray[np.bool_] = (
            is_edge[self.source] | is_edge[self.target] | (node[self.source] == node[self.target])
        )
        return result

    def scaled(self, factor: float) -> Topology:
        """The topology with every link's bandwidth multiplied by a factor."""
        return dataclasses.replace(self, bandwidth_Bps=self.bandwidth_Bps * factor)


class Builder:
    """Collects vertices and links; GPUs come first."""

    def __init__(self, gpus: int) -> None:
        """Start a network of ``gpus`` GPUs.

        Raises:
            InputError: the number is below 1 or above the limit.
        """
        if not 0 < gpus <= _MOST_GPUS:
            raise InputError(f"a network has 1 to {_MOST_GPUS:,} GPUs, not {gpus:,}; correct the counts")
        self.gpus = gpus
        self.names = [f"gpu{rank}" for rank in range(gpus)]
        self._by_name = {name: vertex for vertex, name in enumerate(self.names)}
        self.links: list[tuple[int, int, float, float]] = []

    def vertex(self, name: str) -> int:
        """The vertex with this name; created if missing."""
        if name not in self._by_name:
            if len(self.names) >= MOST_VERTICES:
                raise InputError(f"a network has at most {MOST_VERTICES:,} GPUs and switches; correct the counts")
            self._by_name[name] = len(self.names)
            self.names.append(name)
        return self._by_name[name]

    def existing_vertex(self, name: str) -> int:
        """The vertex with this name.

        Raises:
            InputError: it does not exist.
        """
        if name not in self._by_name:
            raise InputError(
                f"a link leads to {name!r}, but the network has no such vertex; it has {self.names[0]}, "
                f"{self.names[-1]} and {max(len(self.names) - 2, 0)} more"
            )
        return self._by_name[name]

    def one_way(self, source: int, target: int, bandwidth_Bps: float, latency_ns: float) -> None:
        """Add a link in one direction."""
        if not (min(source, target) >= 0 and max(source, target) < len(self.names)):
            raise InputError(
                f"a link connects {source} and {target}, but there are {len(self.names)} vertices; correct it"
            )
        if source == target:
            raise InputError(f"a link leads from {self.names[source]} to itself; correct it, or leave it out")
        if not 0 < bandwidth_Bps < math.inf:
            raise InputError(
                f"the link from {self.names[source]} to {self.names[target]} has a bandwidth of "
                f"{bandwidth_Bps / 1e9:g} GB/s; set more than 0, or leave it out"
            )
        if not 0 <= latency_ns < math.inf:
            raise InputError(
                f"the link from {self.names[source]} to {self.names[target]} has a latency of {latency_ns / 1e3:g} us; "
                "set 0 or more"
            )
        if len(self.links) >= MOST_LINKS:
            raise InputError(f"the network has more than {MOST_LINKS:,} links; describe a smaller part of it")
        self.links.append((source, target, bandwidth_Bps, latency_ns))

    def both_ways(self, vertex: int, other_vertex: int, bandwidth_Bps: float, latency_ns: float) -> None:
        """Add a link in each direction."""
        self.one_way(vertex, other_vertex, bandwidth_Bps, latency_ns)
        self.one_way(other_vertex, vertex, bandwidth_Bps, latency_ns)

    def replace(self, vertex: int, other_vertex: int, bandwidth_Bps: float, latency_ns: float) -> None:
        """Set the bandwidth of the links between two vertices in each direction; adds missing links."""
        directions = {(vertex, other_vertex), (other_vertex, vertex)}
        self.links = [link for link in self.links if link[:2] not in directions]
        self.both_ways(vertex, other_vertex, bandwidth_Bps, latency_ns)

    def scale(self, vertex: int, factor: float) -> None:
        """Multiply the bandwidth of all links of a vertex."""
        if not factor > 0:
            raise InputError(
                f"the links of {self.names[vertex]} have a factor of {factor:g}; set more than 0, or leave it out"
            )
        self.links = [
            (source, target, Bps * (factor if vertex in (source, target) else 1.0), ns)
            for source, target, Bps, ns in self.links
        ]

    def build(self, *, transit: bool = False, gpus_per_node: int = 0, relay: bool = False, seed: int = 0) -> Topology:
        """The topology so far."""
        link_vertices = np.array([link[:2] for link in self.links], np.int64).reshape(-1, 2)
        figures = np.array([link[2:] for link in self.links], np.float64).reshape(-1, 2)
        return Topology(
            gpus=self.gpus,
            names=tuple(self.names),
            source=np.ascontiguousarray(link_vertices[:, 0]),
            target=np.ascontiguousarray(link_vertices[:, 1]),
            bandwidth_Bps=np.ascontiguousarray(figures[:, 0]),
            latency_ns=np.ascontiguousarray(figures[:, 1]),
            transit=transit,
            gpus_per_node=gpus_per_node,
            relay=relay,
            seed=seed,
        )
