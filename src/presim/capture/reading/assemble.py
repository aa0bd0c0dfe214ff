"""Assemble a trace from the capture log."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.capture.reading import packed_attention
from presim.capture.reading.classify import classify_launch
from presim.capture.reading.collective_launches import Communication
from presim.capture.reading.gpu_sharing import gpu_uses, sharing_notes
from presim.capture.reading.launch_operators import LaunchingOperator, parse_operator
from presim.capture.reading.log import Log, parse
from presim.capture.reading.log_tail import LogTail
from presim.capture.reading.memory_categories import categorize
from presim.trace.schema import COLUMNS, Kind, Manifest, Trace
from presim.trace.signatures import Attention, Signature

_REPLAYED = 1  # Record.tag of work replayed by a CUDA graph, but for the first of a launch, which stands for it


_NOTE_PREFIX = "remark "  # prefix of a note that is a sentence for the result


def assemble(log: Log, manifest: Manifest) -> Trace:
    """Turn a log into a trace; adds groups, unmodelled calls, notes and stream priorities to the manifest."""
    tables = Tables(log)
    records = tables.launches(log.records)
    columns = tables.columns(records)
    columns |= {
        "scope": tables.scope_of(records["scope"]),
        "operator": tables.operator_of(records, columns["signature"]),
        "site": tables.site_of(records),
    }
    columns = categorize(columns, tables.operators, tables.scopes)
    return Trace(
        manifest=_complete_manifest(manifest, tables, log, set(records["stream"].tolist())),
        signatures=tuple(tables.signatures),
        scopes=tuple(tables.scopes),
        operators=tuple(tables.operators),
        columns={name: np.ascontiguousarray(columns[name], dtype) for name, dtype in COLUMNS.items()},
        sites=tuple(tables.sites),
    )


def _host_ns(records: NDArray[np.void], after_ns: int | None) -> NDArray[np.int64]:
    """CPU time between entries; ``after_ns``: CPU time of the entry before the first one."""
    if not len(records):
        return np.zeros(0, np.int64)
    before = records["cpu_ns"][0] if after_ns is None else after_ns
    return np.maximum(np.diff(records["cpu_ns"], prepend=before), 0)


def _complete_manifest(manifest: Manifest, tables: Tables, log: Log, streams: set[int]) -> Manifest:
    fields = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    fields["groups"] = tables.communication.groups()
    fields["unmodelled_calls"] = dict(sorted(log.calls.items()))
    remarks = (note.removeprefix(_NOTE_PREFIX) for note in log.notes if note.startswith(_NOTE_PREFIX))
    fields["stream_priorities"] = {
        index: priority for index, priority in stream_priorities(log.notes).items() if index in streams
    }
    fields["stream_devices"] = {
        index: device for index, device in stream_devices(log.notes).items() if index in streams
    }
    fields["gpus"] = gpu_uses(log.notes, manifest.rank, manifest.gpus_per_node)
    assumptions = packed_attention.notes(tables.packed_attentions)
    fields["notes"] = (*manifest.notes, *remarks, *assumptions, *sharing_notes(fields["gpus"], manifest.rank))
    return Manifest(**fields)


def stream_priorities(notes: Sequence[str]) -> dict[int, int]:
    """CUDA's priority of each stream with a non-default one (0 is the lowest, -1 is higher)."""
    described = [parse(note) for note in notes if note.startswith("stream ")]
    priorities = {stream.number("index"): stream.number("priority") for stream in described}
    return {index: priorities[index] for index in sorted(priorities) if priorities[index]}


def stream_devices(notes: Sequence[str]) -> dict[int, int]:
    """The GPU of each stream on another than the first, if one process uses all of them."""
    described = [parse(note) for note in notes if note.startswith("stream ")]
    devices = {stream.number("index"): stream.number("recorded_device") for stream in described}
    return {index: devices[index] for index in sorted(devices) if devices[index]}


def _distinct_rows(*columns: NDArray[np.generic]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first index of each distinct row of some columns [n], and which of them each row [n] is."""
    numbered = [np.unique(column, return_inverse=True) for column in columns]
    widths = tuple(max(len(values), 1) for values, _ in numbered)
    codes = np.ravel_multi_index(tuple(indices.reshape(-1) for _, indices in numbered), widths)
    _, first, row_index = np.unique(codes, return_index=True, return_inverse=True)
    return first, row_index.reshape(-1)


class Tables:
    """The tables of a trace, filled from the descriptors that records refer to; the log may arrive in pieces."""

    def __init__(self, log: Log | LogTail) -> None:
        self.log = log
        self.communication = Communication(log)
        self.signatures: dict[Signature, int] = {}
        self.scopes: dict[str, int] = {}
        self.operators: dict[str, int] = {}
        self.sites: dict[str, int] = {}
        self.packed_attentions: list[Attention] = []
        self._parsed: dict[int, LaunchingOperator | None] = {}
        self._known: dict[tuple[int, int, float], int] = {}
        self._thread_counts: dict[int, int] = {}  # of kernels, by descriptor

    def launches(self, records: NDArray[np.void]) -> NDArray[np.void]:
        """The records, with one for each NCCL launch."""
        return self.communication.merge_coalesced(records)

    def columns(self, records: NDArray[np.void], after_ns: int | None = None) -> dict[str, NDArray[np.generic]]:
        """The columns of a trace except scope and operator; ``after_ns``: CPU time of the record before these."""
        host_ns = _host_ns(records, after_ns)
        replayed = (records["tag"] == _REPLAYED).astype(np.int64)
        return {
            "kind": records["kind"],
            "phase": records["phase"],
            "stream": records["stream"],
            "signature": self.signatures_of(records),
            "host_ns": host_ns,
            "object": records["object"],
            "value": np.where(records["kind"] <= Kind.STREAM_WAIT, replayed, records["value"]),
        }

    def signatures_of(self, records: NDArray[np.void]) -> NDArray[np.int32]:
        """Index into the signature table per record, -1 for anything but device work."""
        result = np.full(len(records), -1, np.int32)
        positions = np.flatnonzero(records["kind"] <= Kind.COLLECTIVE)
        work, op = records["work"][positions].astype(np.int64), records["op"][positions].astype(np.int64)
        shares = self._shares(records)[positions]
        first, launch_index = _distinct_rows(work, op, shares)
        numbers = np.empty(len(first), np.int32)
        for distinct in np.argsort(first).tolist():  # signatures are numbered in the order of their first launch
            launch = int(first[distinct])
            key = (int(work[launch]), int(op[launch]), float(shares[launch]))
            if (number := self._known.get(key)) is None:
                signature = self._signature(int(records["kind"][positions[launch]]), *key)
                number = self._known[key] = self.signatures.setdefault(signature, len(self.signatures))
            numbers[distinct] = number
        result[positions] = numbers[launch_index]
        return result

    def _signature(self, kind: int, work: int, op: int, share: float) -> Signature:
        if kind == Kind.COLLECTIVE:
            return self.communication.signature(work, op)  # negative work ids: coalesced calls
        operator = self._operator(op)
        signature = classify_launch(self.log.descriptors[work], operator, share)
        if isinstance(signature, Attention) and operator is not None and packed_attention.is_packed(operator):
            self.packed_attentions.append(signature)
        return signature

    def _operator(self, op: int) -> LaunchingOperator | None:
        if op not in self._parsed:
            descriptor = self.log.descriptors[op] if op >= 0 else None
            self._parsed[op] = parse_operator(descriptor) if descriptor and descriptor.family == "op" else None
        return self._parsed[op]

    def _shares(self, records: NDArray[np.void]) -> NDArray[np.float64]:
        """Share [n] of its operator's bytes that each launch moves: in proportion to the threads of the operator's."""
        shares = np.ones(len(records))
        positions = np.flatnonzero((records["kind"] == Kind.WORK) & (records["value"] > 0))
        _, operator, counts = np.unique(records["value"][positions], return_inverse=True, return_counts=True)
        is_shared = counts[operator] > 1
        positions, operator = positions[is_shared], operator[is_shared]
        kinds, kernel = np.unique(records["work"][positions], return_inverse=True)
        sizes = np.array([self._thread_count(work) for work in kinds.tolist()] or [0])[kernel]
        totals = np.bincount(operator, sizes, len(counts))[operator]
        parts = [round(size / total, 4) if total else 1.0 for size, total in zip(sizes.tolist(), totals.tolist())]
        shares[positions] = parts
        return shares

    def _thread_count(self, work: int) -> int:
        if work not in self._thread_counts:
            descriptor = self.log.descriptors[work]
            is_kernel = descriptor.family == "kernel"
            sizes = descriptor.numbers("grid") + descriptor.numbers("block")
            self._thread_counts[work] = math.prod(sizes) if is_kernel else 0
        return self._thread_counts[work]

    def name(self, descriptor: int) -> str | None:
        """Name of an operator, module or range, by descriptor id; None if there is none."""
        return self.log.descriptors[descriptor].fields.get("name", "?") if descriptor >= 0 else None

    def scope_of(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """Index into the scope table per record."""
        return self._by_descriptor(ids, self.scopes, "scope")

    def operator_of(self, records: NDArray[np.void], signature: NDArray[np.generic]) -> NDArray[np.int32]:
        """Index into the operator table per record: the operator of a launch, the named range of an allocation.

        PyTorch runs every collective inside the same operator, so collectives are named after their NCCL call.
        """
        result = self._by_descriptor(records["op"], self.operators, "")
        signatures = list(self.signatures)
        for index in np.flatnonzero(records["kind"] == Kind.COLLECTIVE):
            name = f"nccl::{getattr(signatures[signature[index]], 'kind', '?')}"
            result[index] = self.operators.setdefault(name, len(self.operators))
        return result

    def site_of(self, records: NDArray[np.void]) -> NDArray[np.int32]:
        """Index into the table of call sites per record: the line that calls a collective."""
        result = np.full(len(records), -1, np.int32)
        for index in np.flatnonzero(records["kind"] == Kind.COLLECTIVE):
            line = self.communication.line(int(records["work"][index]))
            if line:
                result[index] = self.sites.setdefault(line, len(self.sites))
        return result

    def _by_descriptor(self, ids: NDArray[np.int32], table: dict[str, int], family: str) -> NDArray[np.int32]:
        values, inverse = np.unique(ids, return_inverse=True)
        mapped = np.full(len(values), -1, np.int32)
        for position, value in enumerate(values):
            descriptor = self.log.descriptors[value] if value >= 0 else None
            if descriptor and (not family or descriptor.family == family):
                mapped[position] = table.setdefault(descriptor.fields.get("name", "?"), len(table))
        return mapped[inverse]
