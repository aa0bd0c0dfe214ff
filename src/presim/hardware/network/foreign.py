"""Readers of topologies of ASTRA-sim, htsim and nvidia-smi; `link_lists` reads ns-3 and SimAI, `nccl_topology` NCCL."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable

from presim.errors import InputError
from presim.hardware.network.topology import Builder, Topology

_MOST_RADIX = 65_536
Reader = Callable[[str], Topology]
_NVLINK_BPS = {"V": 25e9}  # one direction of one link of NVLink 2 to 4; NVLink 5 has 50 GB/s
# GB/s of paths by nvidia-smi's names: PCIe 4 x16 through one switch, several, the host's bridge, its sockets.
_PCIE_PATHS = {"PIX": 25e9, "PXB": 25e9, "PHB": 22e9, "NODE": 20e9, "SYS": 15e9}


def astra_sim(text: str) -> Topology:
    """``topology: [Ring, Switch]``, ``npus_count``, ``bandwidth`` (GB/s), ``latency`` (ns), by dimension."""
    lists = {
        key: [part.strip().strip("'\"") for part in values.split(",") if part.strip()]
        for key, values in re.findall(r"^\s*(\w+)\s*:\s*\[([^\]]*)\]", text, re.MULTILINE)
    }
    kinds, sizes = lists["topology"], [int(value) for value in lists["npus_count"]]
    bandwidths = [float(value) * 1e9 for value in lists["bandwidth"]]
    latencies = [float(value) for value in lists["latency"]]
    if len({len(kinds), len(sizes), len(bandwidths), len(latencies)}) > 1:
        raise InputError(
            f"{len(kinds)} dimensions have {len(sizes)} counts, {len(bandwidths)} bandwidths and {len(latencies)} "
            "latencies; give one value per dimension"
        )
    builder = Builder(math.prod(sizes))
    stride = 1
    for number, (kind, size, bandwidth, latency) in enumerate(zip(kinds, sizes, bandwidths, latencies, strict=True)):
        for low in range(stride):
            for base in range(low, builder.gpus, stride * size):
                members = [base + position * stride for position in range(size)]
                _dimension(builder, kind, members, bandwidth, latency, f"dim{number}.{base}")
        stride *= size
    return builder.build(transit=True, gpus_per_node=sizes[0])


def _dimension(builder: Builder, kind: str, members: list[int], bandwidth: float, latency: float, name: str) -> None:
    """Bandwidth is per direction for a ring, per port for a switch, and per NPU over all links if fully connected."""
    if len(members) < 2:
        return
    if kind == "Ring":
        around = zip(members, members[1:] + members[:1], strict=True) if len(members) > 2 else [tuple(members)]
        for npu, other_npu in around:
            builder.both_ways(npu, other_npu, bandwidth / 2 if len(members) > 2 else bandwidth, latency)
    elif kind == "FullyConnected":
        for npu, other_npu in itertools.combinations(members, 2):
            builder.both_ways(npu, other_npu, bandwidth / (len(members) - 1), latency)
    elif kind == "Switch":
        switch = builder.vertex(f"{name}.switch")
        for member in members:
            builder.both_ways(member, switch, bandwidth, latency / 2)
    else:
        raise InputError(f"ASTRA-sim's topology {kind!r} is not supported; use Ring, FullyConnected or Switch")


def htsim(text: str) -> Topology:
    """``Nodes``, ``Tiers``, ``Podsize`` and per ``Tier N`` its speed, radix and latency: a fat tree."""
    head: dict[str, float] = {}
    tiers: list[dict[str, float]] = []
    for line in text.splitlines():
        match = re.match(r"\s*(\w+)\s+([\d.]+)", line)
        if match is None or line.lstrip().startswith("#"):
            continue
        key = match[1].lower()
        if key == "tier":
            tiers.append({})
        else:
            (tiers[-1] if tiers else head)[key] = float(match[2])
    nodes = int(head["nodes"])
    builder = Builder(nodes)
    below, above = list(range(nodes)), tiers
    pod = int(head.get("podsize", nodes))
    for number, tier in enumerate(above):
        speed = tier["downlink_speed_gbps"] / 8 * 1e9
        latency = tier.get("downlink_latency_ns", 0.0) + tier.get("switch_latency_ns", 0.0)
        down = int(tier["radix_down"])
        reach = pod if number < len(above) - 1 else nodes
        below = _tier(builder, number, below, down, reach, nodes, speed * tier.get("bundle", 1.0), latency, tiers)
    return builder.build(gpus_per_node=1)


def _tier(
    builder: Builder, number: int, below: list[int], down: int, reach: int, nodes: int, speed: float, latency: float,
    tiers: list[dict[str, float]],
) -> list[int]:  # fmt: skip
    """Switches of one tier: in the first tier one per ``down`` hosts; above, each reaches all of its pod."""
    if not 0 < down <= _MOST_RADIX:
        raise ValueError(f"tier {number} has {down:,} links down; a switch has 1 to {_MOST_RADIX:,}")
    if number == 0:
        switches = []
        for start in range(0, len(below), down):
            switch = builder.vertex(f"tier0.{start // down}")
            switches.append(switch)
            for host in below[start : start + down]:
                builder.both_ways(host, switch, speed, latency)
        return switches
    if min(nodes, down) < 1:
        raise ValueError(f"tier {number} has {down} links down to {nodes} nodes; both must be at least 1")
    per_group = max(len(below) * reach // nodes, 1)
    up = int(tiers[number - 1].get("radix_up", down))
    if not 0 < up <= _MOST_RADIX:
        raise ValueError(f"tier {number - 1} has {up:,} links up; a switch has 1 to {_MOST_RADIX:,}")
    switches = []
    for group, start in enumerate(range(0, len(below), per_group)):
        members = below[start : start + per_group]
        count = max(len(members) * up // down, 1)
        for switch_index in range(count):
            switch = builder.vertex(f"tier{number}.{group}.{switch_index}")
            switches.append(switch)
            for member in members:
                builder.both_ways(member, switch, speed * up / count, latency)
    return switches


def nvidia_smi(text: str) -> Topology:
    """The matrix of ``nvidia-smi topo -m``: NV18 is 18 NVLinks of 25 GB/s, PIX to SYS are paths over PCIe."""
    rows = [re.sub(r"\x1b\[[\d;]*m", "", line).split() for line in text.splitlines()]
    gpus = [row for row in rows if row and re.fullmatch(r"GPU\d+", row[0]) and len(row) > 1 and "X" in row]
    count = len(gpus)
    _check_matrix(rows, gpus)
    builder = Builder(count)
    for gpu, row in enumerate(gpus):
        for other_gpu in range(gpu + 1, count):
            path = row[1 + other_gpu]
            links = re.fullmatch(r"NV(\d+)", path)
            if links:
                builder.both_ways(gpu, other_gpu, int(links[1]) * _NVLINK_BPS["V"] / _sharing(row, count), 1000.0)
            elif path in _PCIE_PATHS:
                builder.both_ways(gpu, other_gpu, _PCIE_PATHS[path], 2000.0)
            else:
                raise InputError(
                    f"GPU{gpu} reaches GPU{other_gpu} by {path!r}, but expected is one of NV#, "
                    f"{', '.join(_PCIE_PATHS)}; give the whole output of nvidia-smi topo -m"
                )
    return builder.build(gpus_per_node=count)


def _check_matrix(rows: list[list[str]], gpus: list[list[str]]) -> None:
    """Refuse a matrix that lacks rows or columns of its GPUs, or is not the same both ways."""
    heads = [sum(re.fullmatch(r"GPU\d+", word) is not None for word in row) for row in rows if row not in gpus]
    columns = min((len(row) - 1 for row in gpus), default=0)
    if max(heads, default=0) != len(gpus) or columns < len(gpus):
        raise InputError(
            f"the matrix has {max(heads, default=0)} GPUs in its head, {len(gpus)} rows and {columns} columns of GPUs; "
            "give the whole output of nvidia-smi topo -m"
        )
    for gpu, other_gpu in itertools.combinations(range(len(gpus)), 2):
        path, way_back = gpus[gpu][1 + other_gpu], gpus[other_gpu][1 + gpu]
        if path != way_back:
            raise InputError(
                f"GPU{gpu} reaches GPU{other_gpu} by {path!r}, and is reached by {way_back!r}; give the output of "
                "nvidia-smi topo -m as it is"
            )


def _sharing(row: list[str], count: int) -> int:
    """Number of pairs that share a GPU's links: with a switch, every pair lists all links."""
    paths = row[1 : 1 + count]
    return count - 1 if len({path for path in paths if path != "X"}) == 1 and count > 2 else 1
