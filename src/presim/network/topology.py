"""A network as vertices and directed links: what routes and flows are computed on."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_FREE_BPS = 1e18
_MOST_GPUS = 1 << 18
_MOST_LINKS = 10_000_000


@dataclasses.dataclass(frozen=True)
class Topology:
    """Vertices 0 to ``gpus - 1`` are GPUs by global rank; the others are switches and NICs."""

    gpus: int
    names: tuple[str, ...]  # by vertex
    source: Ints  # by link: vertex
    target: Ints
    bandwidth_Bps: Floats
    latency_ns: Floats
    transit: bool = False  # GPUs pass on what is for others (rings and meshes without switches)
    gpus_per_node: int = 0  # 0: not known
    relay: bool = False  # a GPU sends through the GPU of its node that is on the receiver's rail (NCCL's PXN)
    seed: int = 0  # of the choice among paths of equal length

    @property
    def links(self) -> int:
        """Directed links."""
        return len(self.source)

    def link_name(self, link: int) -> str:
        """``from -> to``."""
        return f"{self.names[int(self.source[link])]} -> {self.names[int(self.target[link])]}"

    def within_nodes(self) -> NDArray[np.bool_]:
        """Which links end at a GPU or a NIC, or lie within a node; the others are the fabric's."""
        node = np.array([name.split(".")[0] if name.startswith("node") else name for name in self.names])
        is_edge = np.array([name.startswith("gpu") or ".nic" in name for name in self.names])
        result: NDArray[np.bool_] = (
            is_edge[self.source] | is_edge[self.target] | (node[self.source] == node[self.target])
        )
        return result

    def without_fabric(self) -> Topology:
        """The same with links of the fabric that never limit anything."""
        free = np.where(self.within_nodes(), self.bandwidth_Bps, _FREE_BPS)
        return dataclasses.replace(self, bandwidth_Bps=free)

    def scaled(self, factor: float) -> Topology:
        """With the bandwidth of every link times a factor."""
        return dataclasses.replace(self, bandwidth_Bps=self.bandwidth_Bps * factor)


class Builder:
    """Collects vertices and links; GPUs come first."""

    def __init__(self, gpus: int) -> None:
        """A network of so many GPUs.

        Raises:
            InputError: there are none, or more than a network is built for.
        """
        if not 0 < gpus <= _MOST_GPUS:
            raise InputError(f"a network has 1 to {_MOST_GPUS:,} GPUs, not {gpus:,}; correct the counts")
        self.gpus = gpus
        self.names = [f"gpu{rank}" for rank in range(gpus)]
        self._by_name = {name: vertex for vertex, name in enumerate(self.names)}
        self._links: list[tuple[int, int, float, float]] = []

    def vertex(self, name: str) -> int:
        """The vertex of that name, new where there is none."""
        if name not in self._by_name:
            self._by_name[name] = len(self.names)
            self.names.append(name)
        return self._by_name[name]

    def known(self, name: str) -> int:
        """The vertex of that name.

        Raises:
            InputError: there is none.
        """
        if name not in self._by_name:
            raise InputError(
                f"a link leads to {name!r}, and the network has no such vertex; it has {self.names[0]}, "
                f"{self.names[-1]} and {max(len(self.names) - 2, 0)} more"
            )
        return self._by_name[name]

    def one_way(self, source: int, target: int, bandwidth_Bps: float, latency_ns: float) -> None:
        """Add a link in one direction."""
        if not bandwidth_Bps > 0:
            raise InputError(
                f"the link from {self.names[source]} to {self.names[target]} has a bandwidth of "
                f"{bandwidth_Bps / 1e9:g} GB/s; give it more than 0, or leave it out"
            )
        if len(self._links) >= _MOST_LINKS:
            raise InputError(f"the network has more than {_MOST_LINKS:,} links; describe a smaller part of it")
        self._links.append((source, target, bandwidth_Bps, latency_ns))

    def both_ways(self, one: int, other: int, bandwidth_Bps: float, latency_ns: float) -> None:
        """Add a link in each direction."""
        self.one_way(one, other, bandwidth_Bps, latency_ns)
        self.one_way(other, one, bandwidth_Bps, latency_ns)

    def replace(self, one: int, other: int, bandwidth_Bps: float, latency_ns: float) -> None:
        """Give the links between two vertices this bandwidth in each direction; new ones where there are none."""
        ends = {(one, other), (other, one)}
        self._links = [link for link in self._links if link[:2] not in ends]
        self.both_ways(one, other, bandwidth_Bps, latency_ns)

    def scale(self, vertex: int, factor: float) -> None:
        """Multiply the bandwidth of all links of a vertex."""
        if not factor > 0:
            raise InputError(
                f"the links of {self.names[vertex]} have a factor of {factor:g}; give it more than 0, or leave it out"
            )
        self._links = [
            (source, target, Bps * (factor if vertex in (source, target) else 1.0), ns)
            for source, target, Bps, ns in self._links
        ]

    def build(self, *, transit: bool = False, gpus_per_node: int = 0, relay: bool = False, seed: int = 0) -> Topology:
        """The topology so far."""
        ends = np.array([link[:2] for link in self._links], np.int64).reshape(-1, 2)
        figures = np.array([link[2:] for link in self._links], np.float64).reshape(-1, 2)
        return Topology(
            gpus=self.gpus,
            names=tuple(self.names),
            source=np.ascontiguousarray(ends[:, 0]),
            target=np.ascontiguousarray(ends[:, 1]),
            bandwidth_Bps=np.ascontiguousarray(figures[:, 0]),
            latency_ns=np.ascontiguousarray(figures[:, 1]),
            transit=transit,
            gpus_per_node=gpus_per_node,
            relay=relay,
            seed=seed,
        )
