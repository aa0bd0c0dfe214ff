"""Chakra execution traces as a source: one file per rank, written by presim or other tools.

A host node is host time; a device node is work on its stream with the recorded duration. Dependencies between streams
become events; dependencies on the host follow its order. Nodes may be listed in any order: they are processed by their
dependencies, lowest number first.
"""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from presim.errors import InputError
from presim.hardware import Cluster, choose_cluster
from presim.report import chakra
from presim.sources.source import Request
from presim.system.files import FormatError, convert, decode_json, read_bytes, shortened
from presim.system.files.field_bounds import Count
from presim.trace import spans
from presim.trace.builder import TraceBuilder
from presim.trace.collective import Collective
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Measured, Trace
from presim.trace.signatures import Kernel, Signature

_ONCE = (1, 1, 1)
_MOST_US = 86_400_000_000
_RANKS, _STREAMS = 1 << 20, 1 << 16
# Attributes that are read as numbers: their least and largest values. The least is -1 where that says "none".
_NUMBERS = {
    "rank": (0, _RANKS - 1), "world_size": (1, _RANKS), "stream": (0, _STREAMS - 1), "tensor_size": (0, 1 << 50),
    "num_ops": (0, 1 << 60), "comm_size": (0, 1 << 50), "comm_type": (-1, 1 << 10), "comm_src": (-1, _RANKS - 1),
    "comm_dst": (-1, _RANKS - 1),
}  # fmt: skip
_DEVICE_TYPES = (4, 5, 6, 7)  # compute, send, receive, collective
_COMMUNICATION = 1  # stream of collectives, if the file has none


@dataclasses.dataclass(frozen=True)
class Chakra:
    """Reads execution traces."""

    paths: Sequence[Path]
    request: Request
    name: str = "chakra"

    def job(self) -> Job:
        """All ranks of the files.

        Raises:
            InputError: a file cannot be used, or files do not belong together.
        """
        ranks: dict[int, _Rank] = {}
        for path in self.paths:
            rank_trace = _read(path)
            if rank_trace.rank in ranks:
                raise InputError(
                    f"{ranks[rank_trace.rank].path} and {path} are both of rank {rank_trace.rank}; "
                    "give only one of them"
                )
            ranks[rank_trace.rank] = rank_trace
        first = ranks[min(ranks)]
        world_size = first.attributes.get("world_size", max(ranks) + 1)
        side_file = _side_file(first.path)
        stands_for = {rank: represented for rank, represented in _represented_ranks(side_file).items() if rank in ranks}
        absent = sorted(
            set(range(world_size)) - set(ranks) - {rank for represented in stands_for.values() for rank in represented}
        )
        if absent and self.request.missing == "refuse":
            raise InputError(
                f"{len(absent)} of {world_size} ranks have no trace (first: rank {absent[0]}): give their files "
                "too, or use --missing same if they behave like the given ones"
            )
        cluster = _recorded_on(first, world_size, self.request)
        groups = _groups(side_file, world_size)
        traces = tuple(_Builder(rank_trace, cluster, groups).trace() for _, rank_trace in sorted(ranks.items()))
        notes = (
            f"Imported from {len(traces)} Chakra execution traces: durations are those in the files.",
            "Execution traces contain no allocations: memory is not predicted.",
        )
        return Job(traces, stands_for, notes=notes)


def open_chakra(paths: Sequence[Path], request: Request) -> Chakra | None:
    """Open files that end in ``.et``, or folders of them."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob("*.et")) if path.is_dir() else [path]
    return Chakra(tuple(files), request) if files and all(file.suffix == ".et" for file in files) else None


_EVERYONE = ""  # the group of a collective without a pg_name


@dataclasses.dataclass(frozen=True)
class _Rank:
    path: Path
    rank: int
    attributes: dict[str, Any]  # attributes of the file's metadata
    nodes: dict[int, Any]
    order: list[int]  # node numbers, each after its dependencies


def _read(path: Path) -> _Rank:
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
    attributes = _attributes(metadata)
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
    return _Rank(path, rank, attributes, by_number, _topological_order(by_number, path))


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


def _attributes(message: Any) -> dict[str, Any]:
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


def _represented_ranks(side_file: dict[str, Any]) -> dict[int, list[int]]:
    """By captured rank: the ranks that it represents."""
    try:
        texts = convert(side_file.get("stands_for", {}), dict[Count, str])
    except FormatError as error:
        raise InputError(
            f"stands_for beside the execution traces is no table of ranks ({error}); write the traces again"
        ) from error
    return {rank: spans.from_text(text) for rank, text in texts.items() if text}


def _side_file(path: Path) -> dict[str, Any]:
    """Content of ``NAME.groups.json`` next to ``NAME.R.et``; empty if missing."""
    file = path.with_name(re.sub(r"\.?\d+\.et$", "", path.name) + ".groups.json")
    if not file.is_file():
        return {}
    try:
        content = decode_json(read_bytes(file, "write the execution traces again"))
    except FormatError as error:
        raise InputError(f"{file} cannot be read ({error}); write the execution traces again") from error
    return content if isinstance(content, dict) else {}


def _groups(side_file: dict[str, Any], world_size: int) -> dict[str, Group]:
    """Process groups by ``pg_name``, and one of all ranks for collectives that name none of them."""
    try:
        listed = convert(side_file.get("groups", {}), dict[str, list[Count]])
        names = convert(side_file.get("names", {}), dict[str, str])
    except FormatError as error:
        raise InputError(
            f"the groups beside the execution traces are no table of ranks ({error}); write the traces again"
        ) from error
    groups = {
        pg_name: Group(names.get(pg_name, pg_name), tuple(ranks), len(ranks))
        for pg_name, ranks in sorted(listed.items())
    }
    for group in groups.values():
        if group.ranks and max(group.ranks) >= world_size:
            raise InputError(
                f"group {group.name!r} has rank {max(group.ranks)}, but there are {world_size} ranks; write the "
                "execution traces again"
            )
    return {**groups, _EVERYONE: Group("", tuple(range(world_size)), world_size)}


def _recorded_on(first: _Rank, world_size: int, request: Request) -> Cluster:
    attributes = first.attributes
    gpu = request.gpu or attributes.get("gpu")
    if gpu is None and request.cluster is None:
        raise InputError(f"{first.path} does not name the GPU it was recorded on; give it with --gpu")
    sized = request.nodes or request.gpus_per_node
    return choose_cluster(
        gpu=gpu, node=request.node or attributes.get("node"), fabric=request.fabric or attributes.get("fabric"),
        nodes=request.nodes,
        gpus_per_node=request.gpus_per_node or (None if sized else attributes.get("gpus_per_node")),
        world_size=world_size, cluster=request.cluster,
    )  # fmt: skip


class _Builder:
    """Builds the trace of one rank from its nodes in order."""

    def __init__(self, rank: _Rank, cluster: Cluster, groups: dict[str, Group]) -> None:
        self._rank, self._groups = rank, tuple(groups.values())
        self._indices = {pg_name: index for index, pg_name in enumerate(groups)}
        self._cluster = cluster
        self._build = TraceBuilder(
            Manifest(
                world_size=cluster.world_size, rank=rank.rank, gpu=cluster.gpu.id, script=rank.path.name,
                gpus_per_node=cluster.gpus_per_node, groups=self._groups, node=cluster.node.id,
                fabric=cluster.fabric.id,
                origin="imported",
            )
        )  # fmt: skip
        self._attributes_by_node = {number: _attributes(node) for number, node in rank.nodes.items()}
        self._recorded: dict[int, int] = {}  # node -> event recorded after it
        self._awaited = self._awaited_nodes()
        self._host_ns = 0
        self._works: list[int] = []  # durations of device work, in order

    def trace(self) -> Trace:
        """The rank's trace, with the durations of its nodes as measured times."""
        for number in self._rank.order:
            node, attributes = self._rank.nodes[number], self._attributes_by_node[number]
            if node.type not in _DEVICE_TYPES:
                continue
            if attributes.get("is_cpu_op", False):
                self._add_host_node(node)
            else:
                self._add_device_node(node, attributes)
        trace = self._build.trace()
        return _with_durations(trace, self._works, self._cluster, self._rank.path.name)

    def _awaited_nodes(self) -> set[int]:
        """Nodes that other streams or the host wait for."""
        awaited: set[int] = set()
        for number, node in self._rank.nodes.items():
            stream = self._stream_of(number)
            awaited |= {other for other in node.data_deps if self._stream_of(other) != stream}
        return awaited

    def _stream_of(self, number: int) -> int:
        attributes, node = self._attributes_by_node[number], self._rank.nodes[number]
        if attributes.get("is_cpu_op", False):
            return -1
        stream: int = attributes.get("stream", 0 if node.type == 4 else _COMMUNICATION)
        return stream

    def _add_host_node(self, node: Any) -> None:
        for other in sorted(node.data_deps):
            if other in self._recorded:
                self._build.event_sync(self._recorded[other], host_ns=self._take_host_ns())
        self._host_ns += node.duration_micros * 1000
        if node.name == chakra.STEP:
            self._build.step(host_ns=self._take_host_ns())

    def _add_device_node(self, node: Any, attributes: dict[str, Any]) -> None:
        stream = self._stream_of(node.id)
        for other in sorted(node.data_deps):
            if other in self._recorded and self._stream_of(other) != stream:
                self._build.wait(self._recorded[other], stream=stream, host_ns=self._take_host_ns())
        signature = self._signature(node, attributes)
        self._build.work(signature, stream=stream, host_ns=self._take_host_ns(), operator=node.name)
        self._works.append(max(node.duration_micros * 1000, 0))
        if node.id in self._awaited:
            self._recorded[node.id] = self._build.record(stream=stream)

    def _take_host_ns(self) -> int:
        spent, self._host_ns = self._host_ns, 0
        return spent

    def _signature(self, node: Any, attributes: dict[str, Any]) -> Signature:
        if node.type == 4:
            return Kernel(
                node.name, _ONCE, _ONCE, int(attributes.get("tensor_size", 0)), flops=int(attributes.get("num_ops", 0))
            )
        size, name = int(attributes.get("comm_size", 0)), str(attributes.get("pg_name", ""))
        group = self._indices.get(name, self._indices[_EVERYONE])
        if node.type == 7:
            kind = chakra.KINDS.get(int(attributes.get("comm_type", -1)))
            if kind is None:
                raise InputError(
                    f"{self._rank.path}: node {node.id} ({node.name!r}) is a collective of unknown type "
                    f"{attributes.get('comm_type')}; presim knows {', '.join(sorted(chakra.KINDS.values()))}"
                )
            return Collective(kind, size, "uint8", group)
        kind, end = ("send", "comm_dst") if node.type == 5 else ("recv", "comm_src")
        ranks, other = self._groups[group].ranks, int(attributes.get(end, -1))
        return Collective(kind, size, "uint8", group, ranks.index(other) if other in ranks else -1)


def _with_durations(trace: Trace, works: Sequence[int], cluster: Cluster, source: str) -> Trace:
    """Attach durations; equal work with different durations becomes separate signatures."""
    table: dict[tuple[int, int], int] = {}
    column = trace.columns["signature"].copy()
    work_index = 0
    for entry, index in enumerate(column.tolist()):
        if index >= 0:
            column[entry] = table.setdefault((index, works[work_index]), len(table))
            work_index += 1
    measured = Measured(
        durations_ns=tuple(duration for _, duration in table), gpu=cluster.gpu.id, node=cluster.node.id,
        fabric=cluster.fabric.id, nodes=cluster.nodes, gpus_per_node=cluster.gpus_per_node, source=source,
    )  # fmt: skip
    return dataclasses.replace(
        trace,
        manifest=msgspec.structs.replace(trace.manifest, measured=measured),
        signatures=tuple(trace.signatures[index] for index, _ in table),
        columns={**trace.columns, "signature": column},
    )
