"""A simulated job as Chakra execution traces, which ASTRA-sim and other network simulators replay.

Each rank has a file ``NAME.R.et``: length-delimited protobuf messages, one `GlobalMetadata` and then `Node`s, of the
schema ``et_def.proto`` (mlcommons/chakra, schema/protobuf). Process groups have numbers from 1 on, to which collectives
refer by ``pg_name``: ASTRA-sim reads that as an integer (astra-sim/workload/Workload.cc at 518bd51). Their ranks are in
``NAME.comm_groups.json``, which is ASTRA-sim's ``--comm-group-configuration``; ``NAME.groups.json`` has names as well.

* Device work is a node. It depends on the previous work of its stream, on work of other streams that its stream waited
  for, and on the host node that issued it.
* The end of a step is a host node named ``step ends``.
* Host time is a node with ``is_cpu_op``. It depends on the previous host node and on the work that the host waited for.
* Durations are whole microseconds. Rounding errors carry over to the next node of the stream, so sums are right.
* ``comm_size`` counts bytes as nccl-tests does. Tags number the sends and receives between each pair of ranks.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from presim.cost.price import PricedTrace
from presim.hardware import Cluster
from presim.system.files import make_folder, write_file
from presim.trace import spans
from presim.trace.collective import Collective
from presim.trace.representatives import Representatives
from presim.trace.schema import WAITS, Group, Kind
from presim.trace.signatures import family

_COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 4, 5, 6, 7  # NodeType
_KINDS = {  # CollectiveCommType
    "all_reduce": 0,
    "reduce": 1,
    "all_gather": 2,
    "gather": 3,
    "scatter": 4,
    "broadcast": 5,
    "all_to_all": 6,
    "reduce_scatter": 7,
    "barrier": 9,
}
KINDS = {number: kind for kind, number in _KINDS.items()}  # CollectiveCommType -> kind
STEP = "step ends"  # name of the host node at the end of a step
_VERSION = "0.0.4"


def write(
    ranks: Mapping[int, PricedTrace],
    host_ns: Mapping[int, np.ndarray],
    representatives: Representatives,
    folder: str | os.PathLike[str],
    cluster: Cluster | None = None,
    name: str = "presim",
) -> list[Path]:
    """Write the traces of all simulated ranks and return the files.

    ``host_ns``: by rank, the CPU time before each entry on the cluster's hosts. ``cluster``: named in the metadata.
    """
    target = Path(folder)
    make_folder(target)
    files: list[Path] = []
    numbers = number_groups(ranks)
    for rank, priced in sorted(ranks.items()):
        path = target / f"{name}.{rank}.et"
        write_file(path, encode(priced, host_ns[rank], cluster, numbers))
        files.append(path)
    groups = {str(number): list(group.ranks) for group, number in numbers.items()}
    names = {str(number): group.name for group, number in numbers.items()}
    stands_for = {str(rank): representatives.count(rank) for rank in sorted(ranks)}
    represented_ranks = {str(rank): spans.to_text(representatives.others.get(rank, ())) for rank in sorted(ranks)}
    groups_file = {"groups": groups, "names": names, "ranks_like": stands_for, "stands_for": represented_ranks}
    for part, content in (("comm_groups", groups), ("groups", groups_file)):
        files.append(target / f"{name}.{part}.json")
        write_file(files[-1], (json.dumps(content, indent=2, sort_keys=True) + "\n").encode())
    return files


def number_groups(ranks: Mapping[int, PricedTrace]) -> dict[Group, int]:
    """The numbers of all process groups with known ranks, from 1 on.

    Ranks may call a group by different names: it is known by its ranks and by its order among groups of the same ranks.
    """
    keys: dict[Group, tuple[tuple[int, ...], int, int]] = {}
    for _, priced in sorted(ranks.items()):
        counts: Counter[tuple[tuple[int, ...], int]] = Counter()
        for group in priced.trace.manifest.groups:
            if group.ranks:
                keys.setdefault(group, (group.ranks, group.ordinal, counts[group.ranks, group.ordinal]))
                counts[group.ranks, group.ordinal] += 1
    number_by_key = {key: number for number, key in enumerate(sorted(set(keys.values())), 1)}
    return {group: number_by_key[key] for group, key in keys.items()}


def encode(
    priced: PricedTrace, host_ns: np.ndarray, cluster: Cluster | None = None, numbers: Mapping[Group, int] | None = None
) -> bytes:
    """The nodes of one rank; ``numbers``: of the process groups, by default those of this rank alone."""
    if numbers is None:
        numbers = number_groups({priced.trace.manifest.rank: priced})
    messages = schema()
    metadata = messages["GlobalMetadata"](version=_VERSION)
    trace = priced.trace
    metadata.attr.add(name="world_size", uint64_val=trace.manifest.world_size)
    metadata.attr.add(name="rank", uint64_val=trace.manifest.rank)
    if cluster is not None:
        for part in ("gpu", "node", "fabric"):
            metadata.attr.add(name=part, string_val=getattr(cluster, part).id)
        metadata.attr.add(name="gpus_per_node", uint64_val=cluster.gpus_per_node)
    parts = [delimited(metadata)]
    parts += [delimited(node) for node in _Nodes(priced, host_ns, messages["Node"], numbers).nodes()]
    return b"".join(parts)


def decode(data: bytes) -> tuple[Any, list[Any]]:
    """The metadata and the nodes of a file, as protobuf messages."""
    messages = schema()
    metadata, *nodes = _split(data) if data else [b""]
    return messages["GlobalMetadata"].FromString(metadata), [messages["Node"].FromString(node) for node in nodes]


@dataclasses.dataclass
class _MicrosecondRounding:
    """Rounds nanoseconds down to microseconds and adds the remainder to the next value, so that sums are exact."""

    left_ns: int = 0

    def micros(self, ns: int) -> int:
        microseconds, self.left_ns = divmod(ns + self.left_ns, 1000)
        return microseconds


class _Nodes:
    """Builds the nodes of a trace in one pass."""

    def __init__(self, priced: PricedTrace, host_ns: np.ndarray, node: Any, numbers: Mapping[Group, int]) -> None:
        self.trace, self._node, self._numbers = priced.trace, node, numbers
        self._durations = priced.durations_ns().tolist()
        self._host_ns = host_ns.astype(np.int64).tolist()
        self._number = 0
        self._on_stream: dict[int, int] = {}  # stream -> its last node
        self._waits: dict[int, set[int]] = {}  # stream -> nodes that its next node waits for
        self._recorded: dict[int, int | None] = {}
        self._host, self._host_waits = 0, set[int]()
        self._spent = _MicrosecondRounding()
        self._rounded: dict[int, _MicrosecondRounding] = {}
        self._tags: Counter[tuple[int, int]] = Counter()

    def nodes(self) -> Iterator[Any]:
        columns = [self.trace.columns[name].tolist() for name in ("kind", "stream", "object", "signature", "operator")]
        for entry, (kind, stream, serial, signature, operator) in enumerate(zip(*columns)):
            yield from self._on_host(self._host_ns[entry])
            if kind in (Kind.WORK, Kind.COLLECTIVE):
                yield self._on_device(entry, stream, signature, operator)
            elif kind == Kind.EVENT_RECORD:
                self._recorded[serial] = self._on_stream.get(stream)
            elif kind == Kind.STREAM_WAIT and (awaited := self._recorded.get(serial)) is not None:
                self._waits.setdefault(stream, set()).add(awaited)
            elif kind == Kind.STEP:
                yield self._host_node(0, STEP)
            elif kind in WAITS:
                self._host_waits |= self._awaited_nodes(Kind(kind), stream, serial)

    def _awaited_nodes(self, kind: Kind, stream: int, serial: int) -> set[int]:
        if kind == Kind.EVENT_SYNC:
            awaited_nodes: Iterable[int | None] = [self._recorded.get(serial)]
        elif kind == Kind.STREAM_SYNC:
            awaited_nodes = [self._on_stream.get(stream)]
        else:
            awaited_nodes = self._on_stream.values()
        return {node for node in awaited_nodes if node is not None}

    def _on_host(self, ns: int) -> Iterator[Any]:
        micros = self._spent.micros(ns)
        if not micros and not self._host_waits:
            return
        yield self._host_node(micros, "host")

    def _host_node(self, micros: int, name: str) -> Any:
        node = self._next(name, _COMPUTE, micros)
        node.attr.add(name="is_cpu_op", bool_val=True)
        node.ctrl_deps.extend(sorted({self._host} - {0}))
        node.data_deps.extend(sorted(self._host_waits))
        self._host, self._host_waits = node.id, set()
        return node

    def _on_device(self, entry: int, stream: int, index: int, operator: int) -> Any:
        signature = self.trace.signatures[index]
        micros = self._rounded.setdefault(stream, _MicrosecondRounding()).micros(self._durations[entry])
        name = self.trace.operators[operator] if operator >= 0 else ""
        if isinstance(signature, Collective):
            node = self._next(name or signature.kind, _kind(signature), micros)
            self._communication(node, signature)
        else:
            node = self._next(name or family(signature), _COMPUTE, micros)
            node.attr.add(name="num_ops", int64_val=int(getattr(signature, "flops", 0)))
            node.attr.add(name="tensor_size", uint64_val=int(getattr(signature, "bytes", 0)))
        node.attr.add(name="is_cpu_op", bool_val=False)
        node.attr.add(name="stream", int64_val=stream)
        before = {self._on_stream.get(stream, 0)} | self._waits.pop(stream, set())
        node.data_deps.extend(sorted(before - {0}))
        node.ctrl_deps.extend(sorted({self._host} - {0}))
        self._on_stream[stream] = node.id
        return node

    def _communication(self, node: Any, signature: Collective) -> None:
        manifest = self.trace.manifest
        has_group = 0 <= signature.group < len(manifest.groups)
        group = manifest.groups[signature.group] if has_group else None
        node.attr.add(name="comm_size", int64_val=int(signature.even.bytes))
        if group is not None and group in self._numbers:  # others are among all ranks
            node.attr.add(name="pg_name", string_val=str(self._numbers[group]))
        node.attr.add(name="comm_priority", int32_val=0)
        if node.type == _COLLECTIVE:
            node.attr.add(name="comm_type", int64_val=_KINDS.get(signature.kind, _KINDS["all_to_all"]))
            return
        ranks = group.ranks if group else ()
        peer = ranks[signature.peer] if 0 <= signature.peer < len(ranks) else signature.peer
        sender_and_receiver = (manifest.rank, peer) if node.type == _SEND else (peer, manifest.rank)
        for attribute, value in zip(
            ("comm_src", "comm_dst", "comm_tag"), (*sender_and_receiver, self._tags[sender_and_receiver])
        ):
            node.attr.add(name=attribute, int32_val=int(value))
        self._tags[sender_and_receiver] += 1

    def _next(self, name: str, kind: int, micros: int) -> Any:
        self._number += 1
        return self._node(id=self._number, name=name, type=kind, duration_micros=micros)


def _kind(signature: Collective) -> int:
    return {"send": _SEND, "recv": _RECEIVE}.get(signature.kind, _COLLECTIVE)


def delimited(message: Any) -> bytes:
    """A message, prefixed with its length as a varint."""
    data: bytes = message.SerializeToString(deterministic=True)
    remaining_length, head = len(data), bytearray()
    while remaining_length > 0x7F:
        head.append(remaining_length & 0x7F | 0x80)
        remaining_length >>= 7
    return bytes([*head, remaining_length]) + data


def _split(data: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < len(data):
        size = shift = 0
        while True:
            byte = data[offset]  # raises IndexError if the file is cut short
            offset += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if offset + size > len(data):
            raise ValueError(f"a message of {size} bytes is cut short")
        yield data[offset : offset + size]
        offset += size


_FIELDS = {  # message -> fields of the schema that are written: number, name, type, repeated
    "AttributeProto": (
        (1, "name", "string", False),
        (7, "int32_val", "int32", False),
        (9, "int64_val", "int64", False),
        (13, "uint64_val", "uint64", False),
        (27, "bool_val", "bool", False),
        (29, "string_val", "string", False),
    ),
    "GlobalMetadata": ((1, "version", "string", False), (2, "attr", "AttributeProto", True)),
    "Node": (
        (1, "id", "uint64", False),
        (2, "name", "string", False),
        (3, "type", "int32", False),  # an enum on the wire
        (4, "ctrl_deps", "uint64", True),
        (5, "data_deps", "uint64", True),
        (6, "start_time_micros", "uint64", False),
        (7, "duration_micros", "uint64", False),
        (10, "attr", "AttributeProto", True),
    ),
}


@functools.cache
def schema() -> dict[str, Any]:
    """Message classes for the part of ``et_def.proto`` that is written here, with the same wire format."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    types = {
        "string": field.TYPE_STRING,
        "int32": field.TYPE_INT32,
        "int64": field.TYPE_INT64,
        "uint64": field.TYPE_UINT64,
        "bool": field.TYPE_BOOL,
    }
    file = descriptor_pb2.FileDescriptorProto(name="presim/et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    for message, fields in _FIELDS.items():
        message_type = file.message_type.add(name=message)
        values = [name for _, name, _, _ in fields if name.endswith("_val")]
        if values:
            message_type.oneof_decl.add(name="value")
        for number, name, type_, repeated in fields:
            message_field = message_type.field.add(name=name, number=number)
            message_field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            message_field.type = types.get(type_, field.TYPE_MESSAGE)
            if type_ not in types:
                message_field.type_name = f".ChakraProtoMsg.{type_}"
            if name in values:
                message_field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = {name: pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}") for name in _FIELDS}
    return {name: message_factory.GetMessageClass(message) for name, message in descriptors.items()}
