"""The tables by which NCCL chooses algorithm and protocol, by version (`calibration/nccl_rules.toml`)."""

from __future__ import annotations

import functools
import math
import re
from typing import Any, Literal

import msgspec

from presim.errors import InputError
from presim.hardware import constants as calibration
from presim.system.files import to_type
from presim.system.files.field_bounds import Count, GBps, Microseconds, PositiveCount, PositiveGBps, Ratio, Share

Latencies = tuple[Microseconds, Microseconds, Microseconds]  # LL, LL128, Simple
Places = tuple[GBps, GBps, GBps]  # one node, two nodes, more


class NcclRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NCCL's latencies and bandwidths of one version. Bandwidths are by GPU generation."""

    base_us: dict[str, Latencies]  # by algorithm
    nvlink_us: dict[str, Latencies]  # each step over NVLink
    pcie_us: dict[str, Latencies]
    net_us: dict[str, Latencies]
    ll_GBps: dict[str, Places]
    ring_ll128_GBps: dict[str, Places]  # of one channel
    tree_ll128_GBps: dict[str, Places]
    tree_GBps: dict[str, Places]
    nvlstree_GBps: dict[str, Places] = {}
    nvls_efficiency: dict[str, Share] = {}
    ring_ll_share: Share
    ring_ll_share_one_node: Share
    ll128_alone_share: Share  # of LL128 in a ring with one GPU a node
    nvls_rule: Literal["share", "efficiency"]
    nvls_scattered_share: Share  # of NVLS in gathers and scatters; 0: what the other GPUs of the node have
    pat: bool
    pat_share: Share
    plateau: tuple[Ratio, Ratio]  # factor of the latency of a Simple ring between nodes: before Ampere, since


class Search(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rates that NCCL tries for its channels."""

    nvlink_share: dict[str, Share]  # by generation: what NCCL counts of NVLink's nominal bandwidth
    pcie_share: Share
    one_node_GBps: dict[str, tuple[PositiveGBps, ...]]
    several_nodes_GBps: dict[str, tuple[PositiveGBps, ...]]
    doubled_from_GBps: GBps
    doubled_few: dict[str, Ratio]


class Threads(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Threads of a channel, and the bytes that each has to itself before another channel is used."""

    max_threads: dict[str, tuple[Count, Count, Count]]
    slow_ring_simple: PositiveCount
    threshold_bytes: tuple[PositiveCount, PositiveCount, PositiveCount]
    nvls_channels: dict[str, PositiveCount]


@functools.cache
def _table() -> dict[str, Any]:
    return calibration.read("nccl_rules.toml")


@functools.cache
def search() -> Search:
    """The rates of the search for channels."""
    return to_type(_table()["search"], Search)


@functools.cache
def threads() -> Threads:
    """Threads and thresholds."""
    return to_type(_table()["threads"], Threads)


def is_amd_host(generation: str) -> bool:
    """Whether servers of a GPU generation are taken to have AMD's CPUs."""
    return generation in _table()["amd_hosts"]


def tree_factor(protocol: int, size: float) -> float:
    """NCCL's correction of a tree's bandwidth for an all-reduce of so many bytes."""
    factors: list[float] = _table()["tree_factors"][("ll", "ll128", "simple")[protocol]]
    power = int(size / 64).bit_length() - 1
    return factors[power] if 0 <= power < len(factors) else 1.0


def smooth_tree_factor(protocol: int, size: float) -> float:
    """The correction between the sizes of NCCL's table, where NCCL takes that of the next smaller one.

    More bytes then take more time: neighbours of the table differ by less than a factor of two.
    """
    octave = math.log2(max(size, 64) / 64)
    lower = 64.0 * 2 ** int(octave)
    shares = tree_factor(protocol, lower), tree_factor(protocol, 2 * lower)
    return shares[0] * math.pow(shares[1] / shares[0], octave - int(octave))


def versions() -> list[str]:
    """The versions with rules of their own, oldest first."""
    return sorted(_table()["rules"], key=_key)


@functools.cache
def rules(version: str = "") -> NcclRules:
    """The rules of a version such as ``2.27.3``; of the default one if it is empty. Older ones than all: the oldest.

    Raises:
        InputError: the text is no version.
    """
    text = version or str(_table()["default_version"])
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", text):
        raise InputError(f"NCCL's version {text!r} is not like 2.27 or 2.27.3; correct it")
    merged: dict[str, Any] = {}
    for name in versions():
        if not merged or _key(name) <= _key(text):
            merged.update(_table()["rules"][name])
    return to_type(merged, NcclRules)


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
