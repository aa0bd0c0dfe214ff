"""The trace of one rank of Chakra's execution traces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec

from presim.errors import InputError
from presim.hardware import Cluster
from presim.report import chakra
from presim.sources.chakra_files import RankFile, attributes_of
from presim.trace.builder import TraceBuilder
from presim.trace.collective import Collective
from presim.trace.schema import Group, Manifest, Measured, Trace
from presim.trace.signatures import Kernel, Signature

_ONCE = (1, 1, 1)
_DEVICE_TYPES = (4, 5, 6, 7)  # compute, send, receive, collective
_COMMUNICATION = 1  # stream of collectives, if the file has none
EVERYONE = ""  # the group of a collective without a pg_name


class TraceOfRank:
    """Builds the trace of one rank from its nodes in order."""

    def __init__(self, rank: RankFile, cluster: Cluster, groups: dict[str, Group]) -> None:
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
        self._attributes_by_node = {number: attributes_of(node) for number, node in rank.nodes.items()}
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
        group = self._indices.get(name, self._indices[EVERYONE])
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
