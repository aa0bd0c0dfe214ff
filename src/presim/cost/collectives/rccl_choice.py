"""RCCL's choice of algorithm and protocol on MI300X, MI325X, MI350X and MI355X, by its tables for each chip.

In a node the choice is the least time by RCCL's estimate, as in NCCL. Between nodes the estimate chooses the algorithm,
and bytes choose the protocol. Facts from ROCm/rccl (`constants/rccl_rules.toml`). No public log of these chips judges
them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import msgspec

from presim.cost.collectives.channels import most_channels
from presim.cost.collectives.nccl_choice import LL, LL128, SIMPLE, AlgorithmChoice, CollectiveQuestion
from presim.cost.collectives.nccl_environment import Tuning
from presim.cost.collectives.nccl_rules import is_amd_host
from presim.cost.collectives.ring_search import ring_channels
from presim.hardware import constants
from presim.system.files import to_type
from presim.system.files.field_bounds import Bytes, Microseconds, Ratio

_ByProtocol = tuple[Ratio, Ratio, Ratio]
_ByPower = tuple[tuple[Ratio, ...], tuple[Ratio, ...], tuple[Ratio, ...]]
_PROTOCOLS = (LL, LL128, SIMPLE)
_SCATTERED = ("all_gather", "reduce_scatter")
_ROOTED = ("broadcast", "reduce")
_ROOTED_LL = 1.65  # of a ring's bandwidth with LL within a node
_LL128_SEVERAL = 3.8  # of the most bytes of an all-reduce with LL128, on more than two nodes


class _Latency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    inside: tuple[Microseconds, Microseconds, Microseconds]
    between: tuple[Microseconds, Microseconds, Microseconds]


class _Chip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tree_factors: _ByPower
    ring_factors: _ByPower
    most_bytes: dict[str, tuple[Bytes, Bytes]]  # by kind: of LL and of LL128, between nodes


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    base: dict[str, tuple[Microseconds, Microseconds, Microseconds]]
    latency_us: dict[str, _Latency]  # of a step, by algorithm
    bandwidth_share: dict[str, tuple[_ByProtocol, _ByProtocol]]
    generations: dict[str, _Chip]


@functools.cache
def _rules() -> _Rules:
    return to_type(constants.read("rccl_rules.toml"), _Rules)


def has_rules(generation: str) -> bool:
    """Whether RCCL's tables for a generation are known."""
    return generation in _rules().generations


def estimates(question: CollectiveQuestion, tuning: Tuning) -> Iterator[AlgorithmChoice]:
    """RCCL's estimates of every algorithm and protocol that it has for a collective, in RCCL's order."""
    if question.kind not in ("all_reduce", "barrier", *_SCATTERED, *_ROOTED) or question.layout.ranks < 2:
        return
    kind = "all_reduce" if question.kind == "barrier" else question.kind
    count = float(most_channels(kind, question.layout, question.links, tuning))
    for algorithm in ("tree", "ring") if kind == "all_reduce" else ("ring",):
        for protocol in _PROTOCOLS:
            if algorithm == "tree" and protocol == SIMPLE and question.layout.nodes == 1:
                continue
            bandwidth_GBps = _bandwidth_GBps(question, tuning, algorithm, protocol)
            seconds = _latency_us(question, algorithm, protocol) * 1e-6 + question.size / (bandwidth_GBps * 1e9)
            yield AlgorithmChoice(algorithm, protocol, seconds, count)


def least_estimate(question: CollectiveQuestion, tuning: Tuning) -> AlgorithmChoice | None:
    """RCCL's choice among what ``tuning`` allows; None: it has no rule for this kind, or nothing is allowed."""
    allowed = [
        choice
        for choice in estimates(question, tuning)
        if tuning.allows(question.kind, choice.algorithm, choice.protocol)
    ]
    least = min(allowed, key=lambda choice: choice.seconds, default=None)
    protocol = _protocol_between_nodes(question)
    is_limited = any(not tuning.allows(question.kind, "ring", protocol) for protocol in _PROTOCOLS)
    if least is None or protocol is None or is_limited:
        return least
    return next(choice for choice in allowed if (choice.algorithm, choice.protocol) == (least.algorithm, protocol))


def _protocol_between_nodes(question: CollectiveQuestion) -> int | None:
    """The protocol that bytes choose; None: in one node, and for kinds without limits."""
    limits = _rules().generations[question.links.generation].most_bytes.get(question.kind)
    if limits is None or question.layout.nodes < 2:
        return None
    size = question.size / (1 if question.kind in ("all_reduce", "reduce") else question.layout.ranks)
    is_scaled = question.kind == "all_reduce" and question.layout.nodes > 2
    if size <= limits[LL]:
        return LL
    return LL128 if size <= limits[LL128] * (_LL128_SEVERAL if is_scaled else 1.0) else SIMPLE


def _bandwidth_GBps(question: CollectiveQuestion, tuning: Tuning, algorithm: str, protocol: int) -> float:
    """Bytes of the buffer a second."""
    layout, chip = question.layout, _rules().generations[question.links.generation]
    shares = _rules().bandwidth_share[algorithm][0 if layout.nodes <= 2 else 1]
    total_GBps = ring_channels(layout, question.links, tuning.graph, tuning.topology).total_GBps * shares[protocol]
    power = min(max(int(question.size / 64).bit_length() - 1, 0), len(chip.tree_factors[0]) - 1)
    if algorithm == "tree":
        return total_GBps * chip.tree_factors[protocol][power] / 2
    if layout.nodes > 1:
        total_GBps *= chip.ring_factors[protocol][power]
    elif protocol == LL and question.kind in _ROOTED:
        total_GBps *= _ROOTED_LL
    return total_GBps * layout.ranks / _steps(question)


def _latency_us(question: CollectiveQuestion, algorithm: str, protocol: int) -> float:
    layout, latency = question.layout, _rules().latency_us[algorithm]
    base_us, inside_us = _rules().base["latency_us"][protocol], latency.inside[protocol]
    between_us = latency.between[protocol] if layout.nodes > 1 else 0.0
    if algorithm == "tree":
        levels = layout.nodes.bit_length() - 1
        return base_us + 2 * ((layout.per_node - 1) * inside_us + levels * between_us)
    if question.kind in _ROOTED:
        return base_us + _steps(question) * (between_us or inside_us)
    overhead_us = (2.0 if is_amd_host(question.links.generation) else 1.0) * (3 if protocol == SIMPLE else 1)
    steps_between = 0 if layout.nodes == 1 else layout.nodes - 1 if question.kind in _SCATTERED else 2 * layout.nodes
    step_us = inside_us if layout.nodes == 1 else max(inside_us, overhead_us)
    return base_us + max(_steps(question) - steps_between, 0) * step_us + steps_between * between_us


def _steps(question: CollectiveQuestion) -> int:
    ranks = question.layout.ranks
    if question.kind in _SCATTERED:
        return ranks - 1
    return ranks if question.kind in _ROOTED else 2 * (ranks - 1)
