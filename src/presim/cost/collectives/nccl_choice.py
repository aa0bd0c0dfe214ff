"""NCCL's choice of algorithm, protocol and channels: the least time by its own estimate, which differs from ours.

Facts from NVIDIA/nccl: `ncclTopoTuneModel` and `ncclTopoGetAlgoTime` in src/graph/tuning.cc, `topoGetAlgoInfo` in
src/enqueue.cc. What is chosen is priced by `presim.cost.collectives.algorithms`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TypeVar

from presim.cost.collectives.group_placement import GroupPlacement, Links
from presim.cost.collectives.nccl_environment import Tuning
from presim.cost.collectives.nccl_rules import NcclRules, is_amd_host, rules, threads, tree_factor
from presim.cost.collectives.ring_search import Heads, head_channels, ring_channels

LL, LL128, SIMPLE = 0, 1, 2
_SCATTERED = ("all_gather", "reduce_scatter")
_ROOTED = ("broadcast", "reduce")
_NVLS = ("hopper", "blackwell")
_NVLS_SHARE = 5 / 6  # of an all-reduce, until 2.27
_PCI_GEN3_GBps = 12.0
_Entry = TypeVar("_Entry")


@dataclasses.dataclass(frozen=True)
class CollectiveQuestion:
    """A collective of a group on links, as NCCL sees it."""

    kind: str
    size: float  # bytes of the larger buffer
    layout: GroupPlacement
    links: Links
    version: str = ""  # of NCCL


@dataclasses.dataclass(frozen=True)
class AlgorithmChoice:
    """An algorithm and protocol with NCCL's estimate of its time."""

    algorithm: str
    protocol: int
    seconds: float
    filled_channels: float  # the last one may have fewer bytes than the others

    @property
    def channels(self) -> int:
        """Channels that NCCL uses."""
        return int(self.filled_channels)


def least_estimate(question: CollectiveQuestion, tuning: Tuning) -> AlgorithmChoice | None:
    """NCCL's choice among what ``tuning`` allows; None: NCCL has no rule for this kind, or nothing is allowed."""
    allowed = [
        choice
        for choice in estimates(question, tuning)
        if tuning.allows(question.kind, choice.algorithm, choice.protocol)
    ]
    return min(allowed, key=lambda choice: choice.seconds, default=None)


def estimates(question: CollectiveQuestion, tuning: Tuning) -> Iterator[AlgorithmChoice]:
    """NCCL's estimates of every algorithm and protocol that it has for a collective, in NCCL's order."""
    if question.kind not in ("all_reduce", "barrier", *_SCATTERED, *_ROOTED) or question.layout.ranks < 2:
        return
    model = _Model(question, rules(question.version), tuning)
    for algorithm in ("tree", "ring", "collnetdirect", "nvls", "nvlstree", "pat"):
        for protocol in (LL, LL128, SIMPLE):
            bandwidth_GBps = model.bandwidth_GBps(algorithm, protocol)
            if bandwidth_GBps > 0:
                latency_us = model.latency_us(algorithm, protocol)
                seconds = latency_us * 1e-6 + question.size / (bandwidth_GBps * 1e9)
                yield AlgorithmChoice(algorithm, protocol, seconds, model.filled_channels(algorithm, protocol))


def plateau_bytes(question: CollectiveQuestion, tuning: Tuning) -> int:
    """The size from which on a Simple ring between nodes has more latency, for an all-reduce."""
    return 64 * _Model(question, rules(question.version), tuning).most_channels() * question.layout.ranks


class _Model:
    """NCCL's model of one communicator."""

    def __init__(self, question: CollectiveQuestion, version_rules: NcclRules, tuning: Tuning) -> None:
        self._question, self._rules, self._tuning = question, version_rules, tuning
        self._layout, self._links = question.layout, question.links
        self._rings = ring_channels(self._layout, self._links, tuning.graph, tuning.topology)
        self._heads = head_channels(self._layout, self._links) if self._links.switched else Heads(0, 0.0, 0.0)
        self._place = min(self._layout.nodes, 3) - 1
        self._generation = self._links.generation
        self._all_reduces = question.kind in ("all_reduce", "barrier")

    def bandwidth_GBps(self, algorithm: str, protocol: int) -> float:
        """Bytes of the buffer a second; 0: not available."""
        if protocol == LL128 and not self._links.nvlink:
            return 0.0
        of_algorithm = {
            "ring": self._ring_GBps, "tree": self._tree_GBps, "nvls": self._nvls_GBps, "nvlstree": self._nvls_GBps,
            "collnetdirect": self._collnet_GBps, "pat": self._pat_GBps,
        }  # fmt: skip
        bandwidth_GBps = of_algorithm[algorithm](protocol, algorithm)
        if algorithm == "tree":
            bandwidth_GBps *= tree_factor(protocol, self._question.size)
        return bandwidth_GBps

    def _ring_GBps(self, protocol: int, _: str) -> float:
        layout, table, total_GBps = self._layout, self._rules, self._rings.total_GBps
        if protocol == LL:
            scatters = layout.nodes == 1 and self._question.kind in (*_SCATTERED, "broadcast")
            share = table.ring_ll_share_one_node if scatters else table.ring_ll_share
            total_GBps = min(self._ll_GBps(), total_GBps * share)
        elif protocol == LL128:
            share = table.ll128_alone_share if layout.per_node == 1 and layout.nodes > 1 else 0.92
            channel_GBps = _of(table.ring_ll128_GBps, self._generation)[self._place]
            total_GBps = min(total_GBps * share, self._rings.count * channel_GBps)
        return total_GBps * layout.ranks / self._steps()

    def _tree_GBps(self, protocol: int, _: str) -> float:
        if not self._all_reduces:
            return 0.0
        table, total_GBps = self._rules, self._rings.total_GBps
        total_GBps = min(total_GBps * 0.92, self._rings.count * _of(table.tree_GBps, self._generation)[self._place])
        if protocol == LL:
            total_GBps = min(total_GBps / 3.8, self._ll_GBps())
        elif protocol == LL128:
            channel_GBps = _of(table.tree_ll128_GBps, self._generation)[self._place]
            share = 7 / 9 if self._layout.nodes == 1 else 120 / 128
            total_GBps = min(total_GBps * share, self._rings.count * channel_GBps)
        return total_GBps / 2

    def _nvls_GBps(self, protocol: int, algorithm: str) -> float:
        """NVLS in one node, or between nodes whose switches reduce; NVLSTree between nodes.

        Gathers and scatters have it in one node only.
        """
        several, heads = self._layout.nodes > 1, self._heads
        available = self._generation in _NVLS and self._links.switched and self._layout.per_node > 1
        if algorithm == "nvls":
            available = available and (not several or self._links.reduces)
        else:
            available = available and several
        if not available or protocol != SIMPLE or self._question.kind in _ROOTED:
            return 0.0
        if several and not self._all_reduces:
            return 0.0
        if self._rules.nvls_rule == "efficiency":
            return self._nvls_by_efficiency_GBps(heads, algorithm)
        if not self._all_reduces:
            per_node = self._layout.per_node
            inside_GBps = heads.count * heads.inside_GBps
            return inside_GBps * (self._rules.nvls_scattered_share or (per_node - 1) / per_node)
        forwards_for_two = algorithm == "nvlstree" and self._layout.nodes > 2
        outside_GBps = heads.outside_GBps / (2 if forwards_for_two else 1)
        return heads.count * min(heads.inside_GBps, outside_GBps) * _NVLS_SHARE

    def _nvls_by_efficiency_GBps(self, heads: Heads, algorithm: str) -> float:
        per_node, nodes = self._layout.per_node, self._layout.nodes
        if heads.count < 2:
            return 0.0
        efficiency = _of(self._rules.nvls_efficiency, self._generation)
        channel_GBps = heads.inside_GBps * efficiency * (heads.count - 1) / heads.count
        channel_GBps *= 2 if self._all_reduces else (per_node - 1) / per_node
        if nodes > 1:
            joins_two = algorithm == "nvlstree" and nodes == 2
            channel_GBps = min(channel_GBps, heads.outside_GBps * (2 if joins_two else 1))
        if algorithm == "nvlstree":
            channel_GBps = min(channel_GBps, _of(self._rules.nvlstree_GBps, self._generation)[self._place])
        ratio = self._layout.ranks / self._steps() if self._all_reduces else 1.0
        return heads.count * channel_GBps * ratio

    def _collnet_GBps(self, protocol: int, _: str) -> float:
        layout = self._layout
        if not (self._links.reduces and self._all_reduces and protocol == SIMPLE and layout.nodes > 1):
            return 0.0
        factor = layout.per_node / self._rings.count
        factor -= (factor - 1) / 2
        slower = 0.85 if self._generation in _NVLS else 1.0
        return self._rings.total_GBps / factor * slower / 2

    def _pat_GBps(self, protocol: int, _: str) -> float:
        has_one_gpu_a_node = self._layout.per_node == 1 and self._layout.nodes > 1
        if not (self._rules.pat and has_one_gpu_a_node and protocol == SIMPLE and self._question.kind in _SCATTERED):
            return 0.0
        return self._rings.total_GBps * self._rules.pat_share

    def latency_us(self, algorithm: str, protocol: int) -> float:
        """NCCL's latency of a collective."""
        layout, table = self._layout, self._rules
        base_us = table.base_us[algorithm][protocol]
        intra_us = (table.nvlink_us if self._links.nvlink else table.pcie_us)[algorithm][protocol]
        inter_us = table.net_us["tree" if layout.per_node == 1 else algorithm][protocol]
        inside, levels = layout.per_node - 1, int(math.log2(layout.nodes))
        if algorithm == "ring":
            return base_us + self._ring_latency_us(protocol, intra_us, inter_us)
        if algorithm == "tree":
            return base_us + 2 * (inside * intra_us + levels * inter_us)
        if algorithm == "collnetdirect":
            return base_us + 2 * (min(1, inside) * intra_us + inside * 0.4) + inter_us
        if algorithm == "nvls":
            return intra_us + (inter_us if layout.nodes > 1 else 0.0)
        if algorithm == "nvlstree":
            return base_us + intra_us + 2 * levels * inter_us
        return base_us + levels * inter_us / 3.5 + layout.ranks * 2.8

    def _ring_latency_us(self, protocol: int, intra_us: float, inter_us: float) -> float:
        layout, steps = self._layout, self._steps()
        if self._question.kind in _ROOTED:  # all rings are alike: one step
            return self._rules.net_us["ring"][protocol] if layout.nodes > 1 else intra_us
        if layout.nodes == 1:
            return steps * intra_us
        overhead_us = (2.0 if is_amd_host(self._generation) else 1.0) * (3 if protocol == SIMPLE else 1)
        between = (2 if self._all_reduces else 1) * (layout.nodes - 1)
        latency_us = (steps - between) * max(intra_us, overhead_us) + between * inter_us
        if protocol == SIMPLE and self._all_reduces and self._question.size / layout.ranks >= 64 * self.most_channels():
            latency_us *= self._rules.plateau[0 if self._generation in ("volta", "turing") else 1]
        return latency_us

    def most_channels(self) -> int:
        """Channels of a large call of rings or trees: those of the search twice, within the limits of the variables."""
        return max(min(2 * self._rings.count, self._tuning.most_channels), self._tuning.fewest_channels)

    def filled_channels(self, algorithm: str, protocol: int) -> float:
        """Channels of this call: as many as have enough bytes for each of their threads, and a part of another."""
        limits, size = threads(), self._question.size
        if algorithm in ("nvls", "nvlstree"):
            name = f"{self._generation}_several_nodes" if self._layout.nodes > 1 else self._generation
            count = self._tuning.nvls_channels or limits.nvls_channels.get(name)
            count = count or limits.nvls_channels.get(self._generation, 16)
            return max(min(count, self._tuning.most_channels), self._tuning.fewest_channels)
        slow = algorithm == "ring" and protocol == SIMPLE and self._rings.total_GBps <= _PCI_GEN3_GBps
        count_threads = limits.slow_ring_simple if slow else limits.max_threads[algorithm][protocol]
        if self._tuning.threads and protocol != LL128:
            count_threads = min(count_threads, self._tuning.threads)
        channel_bytes = count_threads * limits.threshold_bytes[protocol]
        if algorithm == "ring" and protocol == LL:
            channel_bytes *= self._layout.ranks
        return max(1, min(self.most_channels(), size / channel_bytes))

    def _ll_GBps(self) -> float:
        if self._layout.nodes == 1:
            return _of(self._rules.ll_GBps, self._generation)[0]
        return self._rules.ll_GBps["ampere" if is_amd_host(self._generation) else "volta"][self._place]

    def _steps(self) -> int:
        ranks = self._layout.ranks
        if self._all_reduces:
            return 2 * (ranks - 1)
        return ranks if self._question.kind in _ROOTED else ranks - 1


def _of(table: dict[str, _Entry], generation: str) -> _Entry:
    """The entry of a generation, or of the nearest older one."""
    nearest = {"turing": "volta", "ada": "ampere"}
    return table[generation if generation in table else nearest.get(generation, "volta")]
