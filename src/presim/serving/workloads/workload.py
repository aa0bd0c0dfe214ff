"""A workload: arrival times, lengths and shared prefixes of requests, as a value that can be saved and read back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.system.files import FormatError, decode_json, read_text, write_file
from presim.system.files.field_bounds import Integer

Ints = NDArray[np.int64]

_MAGIC = "presim-workload"
_VERSION = 1
_MOST = 1 << 31  # tokens of a prompt or an answer
_COLUMNS = ("arrival_ns", "prompt", "output", "stream", "priority", "parent", "delay_ns", "adapter", "grammar_ns")

_REPEATED = ("prompt", "output", "priority", "delay_ns", "adapter", "grammar_ns")


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """Requests in order of arrival; columns have one entry per request.

    A prompt consists of the tokens of its segments (``segment_tokens`` each), followed by those of its stream. Two
    requests share cached tokens as far as their segments, and after them their streams, are equal.
    """

    name: str
    arrival_ns: Ints  # of one with a parent: the earliest
    prompt: Ints  # tokens
    output: Ints  # tokens
    stream: Ints  # id of its conversation, or its own
    priority: Ints  # lower is more urgent
    parent: Ints  # the request after whose end it is sent; -1: it arrives by the clock
    delay_ns: Ints  # between the end of its parent, and of others it joins, and its arrival
    adapter: Ints  # LoRA adapter; 0: none
    grammar_ns: Ints  # to compile the grammar of its output; -1: it has none
    segment_first: Ints  # one more entry than requests
    segments: Ints
    segment_tokens: int = 0
    concurrency: int = 0  # most requests in flight; 0: no limit
    delay_workers: int = 0  # delays that pass at once, the others wait for a worker; 0: no limit
    seed: int | None = None
    origin: str = ""  # generator, or source file
    skipped: tuple[str, ...] = ()  # rows of a file that were skipped, with reasons
    joins: Ints = dataclasses.field(default_factory=lambda: np.zeros((0, 2), np.int64))  # (request, another parent)
    remarks: tuple[str, ...] = ()  # how the file was read, and which of its fields were not

    def __len__(self) -> int:
        return len(self.arrival_ns)

    def __post_init__(self) -> None:
        """Raise InputError on inconsistent columns."""
        count = len(self)
        lengths = {name: len(getattr(self, name)) for name in _COLUMNS}
        if set(lengths.values()) != {count} or len(self.segment_first) != count + 1:
            raise InputError(f"a workload's columns must have one entry per request, but have {lengths}; make it again")
        if count and (self.prompt.min() < 1 or self.output.min() < 1):
            raise InputError("each request needs a prompt and an output of at least one token; correct the lengths")
        if count and max(self.prompt.max(), self.output.max()) > _MOST:
            raise InputError(f"a request may have at most {_MOST:,} tokens; correct the lengths")
        if count and (self.arrival_ns.min() < 0 or self.delay_ns.min() < 0):
            raise InputError("a request arrives before the workload starts, or before its parent ends; correct it")
        index = np.arange(count)
        if np.any((self.parent < -1) | (self.parent >= index)):
            raise InputError("a request's parent comes after it; correct the parents")
        waiting, awaited = self.dependencies()
        if count and ((awaited >= waiting) | (awaited < 0) | (self.parent[waiting] < 0)).any():
            raise InputError("a request joins others before its parent, or after itself; correct the joins")

    def dependencies(self) -> tuple[Ints, Ints]:
        """Pairs of a request and one after whose end it is sent, as two columns."""
        waiting = np.flatnonzero(self.parent >= 0)
        return (
            np.concatenate([waiting, self.joins[:, 0]]).astype(np.int64),
            np.concatenate([self.parent[waiting], self.joins[:, 1]]).astype(np.int64),
        )

    def first(self, count: int) -> Workload:
        """The first ``count`` requests."""
        count = min(count, len(self))
        cut = {name: getattr(self, name)[:count] for name in _COLUMNS}
        firsts = self.segment_first[: count + 1]
        joins = self.joins[self.joins[:, 0] < count]
        return dataclasses.replace(self, **cut, segment_first=firsts, segments=self.segments[: firsts[-1]], joins=joins)

    def at_once(self, least: int) -> Workload:
        """Repeat the requests until there are at least ``least``, all arriving at time 0."""
        times = -(-least // max(len(self), 1)) or 1
        request_indices = np.tile(np.arange(len(self)), times)
        lap = np.repeat(np.arange(times), len(self))
        ids = np.diff(self.segment_first)[request_indices]
        return dataclasses.replace(
            self,
            **{
                name: getattr(self, name)[request_indices]
                for name in ("prompt", "output", "priority", "delay_ns", "adapter", "grammar_ns")
            },
            arrival_ns=np.zeros(len(request_indices), np.int64),
            stream=self.stream[request_indices] + lap * (int(self.stream.max(initial=0)) + 1),
            parent=np.where(self.parent[request_indices] < 0, -1, self.parent[request_indices] + lap * len(self)),
            segment_first=np.concatenate([[0], np.cumsum(ids)]).astype(np.int64),
            segments=np.tile(self.segments, times),
            joins=np.concatenate([self.joins + number * len(self) for number in range(times)]),
            concurrency=0,
        )

    def scaled(self, factor: float) -> Workload:
        """The same requests, arriving ``factor`` times as fast."""
        return dataclasses.replace(self, arrival_ns=(self.arrival_ns / factor).astype(np.int64))


def make(name: str, arrival_ns: Ints, prompt: Ints, output: Ints, **overrides: Any) -> Workload:
    """Build a workload; requests share no prefixes unless ``overrides`` sets them."""
    count = len(arrival_ns)
    zeros = np.zeros(count, np.int64)
    columns: dict[str, Any] = {
        "stream": np.arange(count, dtype=np.int64),
        "priority": zeros,
        "parent": np.full(count, -1, np.int64),
        "delay_ns": zeros,
        "adapter": zeros,
        "grammar_ns": zeros - 1,
        "segment_first": np.zeros(count + 1, np.int64),
        "segments": np.zeros(0, np.int64),
        **overrides,
    }
    arrival, first, then = (np.ascontiguousarray(column, np.int64) for column in (arrival_ns, prompt, output))
    return Workload(name, arrival, first, then, **columns)


def summary(workload: Workload) -> dict[str, Any]:
    """Summary statistics as plain values."""
    count = len(workload)
    by_clock = workload.arrival_ns[workload.parent < 0]
    span = float(by_clock.max() - by_clock.min()) / 1e9 if len(by_clock) else 0.0

    def lengths(column: Ints) -> dict[str, float]:
        if not count:
            return {}
        middle, high = np.percentile(column, [50, 99])
        return {"mean": float(column.mean()), "median": float(middle), "p99": float(high), "max": int(column.max())}

    shared = len(workload.segments) - len(np.unique(workload.segments))
    return {
        "name": workload.name,
        "origin": workload.origin,
        "seed": workload.seed,
        "requests": count,
        "span_s": span,
        "request_rate": (len(by_clock) - 1) / span if span > 0 else None,
        "concurrency": workload.concurrency or None,
        "prompt_tokens": lengths(workload.prompt),
        "output_tokens": lengths(workload.output),
        "total_prompt_tokens": int(workload.prompt.sum()),
        "total_output_tokens": int(workload.output.sum()),
        "adapters": len(np.unique(workload.adapter[workload.adapter > 0])),
        "structured_requests": int((workload.grammar_ns >= 0).sum()),
        "follow_up_requests": int((workload.parent >= 0).sum()),
        "tokens_shared_at_most": int(shared * workload.segment_tokens),
        "skipped_rows": len(workload.skipped),
    }


def write(workload: Workload, path: Path) -> None:
    """Save as JSON lines: a header with magic and version, then one request per line."""
    head = {
        "format": _MAGIC,
        "version": _VERSION,
        "requests": len(workload),
        **{
            key: getattr(workload, key)
            for key in ("name", "segment_tokens", "concurrency", "seed", "origin", "skipped", "remarks")
        },
    }
    rows = zip(*(getattr(workload, name).tolist() for name in _COLUMNS))
    firsts = workload.segment_first.tolist()
    lines = [json.dumps(head, sort_keys=True)]
    joined: dict[int, list[int]] = {}
    for request, end in workload.joins.tolist():
        joined.setdefault(request, []).append(end)
    for request_index, row in enumerate(rows):
        entry = dict(zip(_COLUMNS, row))
        if ids := workload.segments[firsts[request_index] : firsts[request_index + 1]].tolist():
            entry["segments"] = ids
        if request_index in joined:
            entry["joins"] = joined[request_index]
        lines.append(json.dumps(entry, sort_keys=True))
    write_file(path, ("\n".join(lines) + "\n").encode())


def read(path: Path) -> Workload:
    """Read a workload saved by `write`."""
    try:
        text = read_text(path, "give a workload that presim saved")
        lines = [line for line in text.splitlines() if line.strip()]
        head = decode_json(lines[0] if lines else "", _Head)
    except FormatError as error:
        raise InputError(f"{path} cannot be read as a workload: {error}; give a file that presim saved") from error
    if head.format != _MAGIC or head.version != _VERSION:
        raise InputError(f"{path} is not a workload of version {_VERSION}; give one, or read a trace with --trace")
    try:
        rows = [decode_json(line, _Request) for line in lines[1:]]
    except FormatError as error:
        raise InputError(f"{path} has a line that is not a request ({error}); save the workload again") from error
    if len(rows) != head.requests:
        raise InputError(f"{path} has {len(rows)} of {head.requests} requests: the file was truncated; save it again")
    columns: dict[str, Any] = {name: np.array([getattr(row, name) for row in rows], np.int64) for name in _COLUMNS}
    ids = [row.segments for row in rows]
    firsts = np.concatenate(
        [[0], np.cumsum([len(request_segments) for request_segments in ids], dtype=np.int64)]
    ).astype(np.int64)
    flat = np.array([segment for some in ids for segment in some], np.int64)
    joins = np.array(
        [(request_index, end) for request_index, row in enumerate(rows) for end in row.joins], np.int64
    ).reshape(-1, 2)
    names = ("segment_tokens", "concurrency", "seed", "origin", "skipped", "remarks")
    head_fields = {key: getattr(head, key) for key in names}
    return Workload(head.name, **columns, segment_first=firsts, segments=flat, joins=joins, **head_fields)


_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class _Head(msgspec.Struct):
    """The first line of a saved workload."""

    format: str = ""
    version: Integer = 0
    requests: _Count = 0
    name: str = ""
    segment_tokens: _Count = 0
    concurrency: _Count = 0
    seed: Integer | None = None
    origin: str = ""
    skipped: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class _Request(msgspec.Struct):
    """A further line."""

    arrival_ns: Integer
    prompt: Integer
    output: Integer
    stream: Integer
    priority: Integer
    parent: Integer
    delay_ns: Integer
    adapter: _Count = 0
    grammar_ns: Integer = -1
    segments: tuple[Integer, ...] = ()
    joins: tuple[_Count, ...] = ()
