"""Files of Chakra execution traces: the nodes of one rank, in an order in which each follows its dependencies."""

from __future__ import annotations

import dataclasses
import heapq
import re
from pathlib import Path
from typing import Any

from presim.errors import InputError
from presim.report import chakra
from presim.system.files import read_bytes, shortened

_MOST_US = 86_400_000_000
_RANKS, _STREAMS = 1 << 20, 1 << 16
# Attributes that are read as numbers: their least and largest values. The least is -1 where that says "none".
_NUMBERS = {
    "rank": (0, _RANKS - 1), "world_size": (1, _RANKS), "stream": (0, _STREAMS - 1), "tensor_size": (0, 1 << 50),
    "num_ops": (0, 1 << 60), "comm_size": (0, 1 << 50), "comm_type": (-1, 1 << 10), "comm_src": (-1, _RANKS - 1),
    "comm_dst": (-1, _RANKS - 1),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class RankFile:
    """A rank's file."""

    path: Path
    rank: int
    attributes: dict[str, Any]  # attributes of the file's metadata
    nodes: dict[int, Any]
    order: list[int]  # node numbers, each after its dependencies


def read_rank(path: Path) -> RankFile:
    """Read a file.

    Raises:
        InputError: it is no execution trace, or its nodes depend on each other in a circle.
    """
    from google.protobuf.message import DecodeError

    data = read_bytes(path, "check its name and permissions")
    try:
        metadata, nodes = chakra.decode(data)
    except (DecodeError, ValueError, IndexError) as error:
        raise InputError(
            f"{path} is truncated, damaged or not a Chakra execution trace ({len(data):,} bytes); write it again"
        ) from error
    if not nodes:
        raise InputError(f"{path} has no nodes; write the execution trace again")
    attributes = attributes_of(metadata)
    named = re.search(r"(\d+)\.et$", path.name)
    rank = attributes.get("rank", int(named[1]) if named and len(named[1]) < len(str(_RANKS)) else 0)
    by_number: dict[int, Any] = {}
    for node in nodes:
        if node.id in by_number:
            raise InputError(f"{path} has two nodes of number {node.id}; write the execution trace again")
        if node.duration_micros > _MOST_US:
            raise InputError(
                f"{path}: node {node.id} takes {node.duration_micros:,} us, and at most a day can be read; write the "
                "execution trace again"
            )
        by_number[node.id] = node
    return RankFile(path, rank, attributes, by_number, _topological_order(by_number, path))


def _topological_order(nodes: dict[int, Any], path: Path) -> list[int]:
    """Topological order of nodes; ties go to the lower number."""
    open_: dict[int, int] = {}
    follow: dict[int, list[int]] = {}
    for number, node in nodes.items():
        before = {*node.data_deps, *node.ctrl_deps}
        if undeclared := [other for other in before if other not in nodes]:  # a difference of sets looks at all nodes
            raise InputError(
                f"{path}: node {number} ({node.name!r}) depends on node {min(undeclared)}, which the file does not "
                "contain; write the execution trace again"
            )
        open_[number] = len(before)
        for other in before:
            follow.setdefault(other, []).append(number)
    ready = [number for number, count in open_.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for other in follow.get(number, ()):
            open_[other] -= 1
            if not open_[other]:
                heapq.heappush(ready, other)
    if len(order) < len(nodes):
        stuck = min(number for number, count in open_.items() if count)
        raise InputError(
            f"{path}: {len(nodes) - len(order)} nodes depend on each other in a loop, node {stuck} "
            f"({nodes[stuck].name!r}) among them; write the execution trace again"
        )
    return order


def attributes_of(message: Any) -> dict[str, Any]:
    """The attributes of a node or of the file.

    Raises:
        InputError: one that is read as a number is none, or is too large for a trace.
    """
    attributes = {
        attribute.name: getattr(attribute, value)
        for attribute in message.attr
        if (value := attribute.WhichOneof("value"))
    }
    for name in _NUMBERS.keys() & attributes.keys():
        value, (least, largest) = attributes[name], _NUMBERS[name]
        if type(value) is not int or not least <= value <= largest:
            raise InputError(
                f"an execution trace has the attribute {name} = {shortened(repr(value))}; a whole number from {least} "
                f"to {largest} belongs there: write the execution traces again"
            )
    return attributes
