"""The allocator's history as a snapshot that pytorch.org/memory_viz opens.

The layout is that of ``torch.cuda.memory._snapshot()``. The viewer reads pickles, so a pickle of plain dicts, lists,
tuples, strings and numbers is written. presim itself never reads pickles.
"""

from __future__ import annotations

import bisect
import os
import pickle
from typing import Any

import numpy as np

from presim.analysis.memory.blocks import Blocks, find_blocks, reserved_bytes
from presim.analysis.memory.peaks import device_clock_ns, requested_bytes
from presim.engine.timeline import Timeline
from presim.system.files import write_file
from presim.trace.schema import Category, Kind, Phase, Trace

Frame = dict[str, Any]
Event = dict[str, Any]


def write(trace: Trace, timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write the snapshot of one rank to a file."""
    write_file(path, pickle.dumps(snapshot(trace, timeline), protocol=4))


def snapshot(trace: Trace, timeline: Timeline) -> dict[str, Any]:
    """The allocator's events and the live segments at the end, as plain data."""
    blocks = find_blocks(trace)
    frames = _Frames(trace, blocks)
    expandable = _is_expandable(trace, blocks)
    return {
        "segments": _segments(trace, blocks, frames, expandable=expandable),
        "device_traces": [
            _events(trace, timeline, frames, expandable=expandable) + _last_events(trace, timeline),
        ],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
        "external_annotations": [],
    }


class _Frames:
    """The "call stack" of each block: operator in its module, phase, category; equal stacks are one object."""

    def __init__(self, trace: Trace, blocks: Blocks) -> None:
        self._trace = trace
        categories = blocks.categories_at(len(trace)).tolist()
        self._category = dict(zip(blocks.alloc.tolist(), categories))
        self._known: dict[tuple[int, int, int, int], list[Frame]] = {}
        self._columns = [trace.columns[name].tolist() for name in ("operator", "scope", "phase")]

    def of(self, entry: int) -> list[Frame]:
        """The frames of the block that this entry allocated."""
        operator, scope, phase = (column[entry] for column in self._columns)
        key = (operator, scope, phase, self._category.get(entry, 0))
        if key not in self._known:
            self._known[key] = self._frames(*key)
        return self._known[key]

    def category(self, entry: int) -> str:
        """Name of the last category of this entry's block."""
        return Category(self._category.get(entry, 0)).name.lower()

    def _frames(self, operator: int, scope: int, phase: int, category: int) -> list[Frame]:
        trace = self._trace
        name = trace.operators[operator] if operator >= 0 else "allocation"
        module = trace.scopes[scope] if scope >= 0 else "outside modules"
        return [
            {"name": name, "filename": module, "line": 0},
            {"name": Phase(phase).name.lower(), "filename": "phase", "line": 0},
            {"name": Category(category).name.lower(), "filename": "category", "line": 0},
        ]


_ACTIONS = {
    Kind.ALLOC: ("alloc",),
    Kind.FREE: ("free_requested", "free_completed"),
    Kind.SEGMENT_ALLOC: ("segment_alloc",),
    Kind.SEGMENT_FREE: ("segment_free",),
}
# The viewer joins and splits pieces of an expandable segment by these; it takes the others as whole segments.
_EXPANDABLE = {"segment_alloc": "segment_map", "segment_free": "segment_unmap"}


def _events(trace: Trace, timeline: Timeline, frames: _Frames, *, expandable: bool) -> list[Event]:
    """The allocator's events in order, in microseconds of the device's clock."""
    handed_out: dict[int, int] = {}  # address -> entry of its latest ALLOC
    events: list[Event] = []
    clock = (device_clock_ns(trace, timeline) // 1000).tolist()
    columns = [trace.columns[name].tolist() for name in ("kind", "stream", "object", "value")]
    for entry, (kind, stream, address, size) in enumerate(zip(*columns)):
        if kind == Kind.ALLOC:
            handed_out[address] = entry
        owner = handed_out.get(address, -1) if kind in (Kind.ALLOC, Kind.FREE) else -1
        stack = frames.of(owner) if owner >= 0 else []
        for action in _ACTIONS.get(Kind(kind), ()):
            name = _EXPANDABLE.get(action, action) if expandable else action
            event = {"action": name, "addr": address, "size": size, "stream": stream, "time_us": clock[entry]}
            category = {"category": frames.category(owner)} if action == "alloc" else {}
            events.append({**event, "frames": stack, **category})
    return events


def _last_events(trace: Trace, timeline: Timeline) -> list[Event]:
    """The failed allocation, if there is one, and the event of taking the snapshot.

    The latter has a category, because the viewer crashes if no event has one (``snapshot.categores``).
    """
    last = {"addr": 0, "size": 0, "stream": 0, "time_us": timeline.makespan_ns // 1000, "frames": []}
    events: list[Event] = [{**last, "action": "snapshot", "category": "unknown"}]
    requested = requested_bytes(trace.manifest.error)
    if trace.manifest.exit == "out_of_memory" and requested is not None:
        reserved = reserved_bytes(trace)
        free = max(trace.manifest.memory_capacity_bytes - (int(reserved[-1]) if len(reserved) else 0), 0)
        events.insert(0, {**last, "action": "oom", "size": requested, "device_free": free})
    return events


def _segments(trace: Trace, blocks: Blocks, frames: _Frames, *, expandable: bool) -> list[dict[str, Any]]:
    """Live segments at the end of the trace, each divided into its blocks and the gaps between them."""
    placed_blocks = _blocks_by_address(trace, blocks, blocks.live_at(len(trace) - 1).tolist())
    starts = [start for start, _, _ in placed_blocks]
    segments = []
    for start, end, stream in _live_ranges(trace, join=expandable):
        inside = placed_blocks[bisect.bisect_left(starts, start) : bisect.bisect_left(starts, end)]
        blocks_in = _tiles(start, end, inside, frames)
        segments.append(_segment(start, end, stream, blocks_in, is_expandable=expandable))
    return segments


def _blocks_by_address(trace: Trace, blocks: Blocks, block_indices: list[int]) -> list[tuple[int, int, int]]:
    """Address, size and entry of some blocks, by address."""
    address = trace.columns["object"].tolist()
    alloc, size = blocks.alloc.tolist(), blocks.bytes.tolist()
    return sorted((address[alloc[index]], size[index], alloc[index]) for index in block_indices)


def _live_ranges(trace: Trace, *, join: bool) -> list[tuple[int, int, int]]:
    """Start, end and stream of live segments. With ``join``, adjacent segments of one stream become one."""
    live: dict[int, tuple[int, int]] = {}
    is_segment_entry = trace.mask(Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)
    columns = [trace.columns[name][is_segment_entry].tolist() for name in ("kind", "object", "value", "stream")]
    for kind, address, size, stream in zip(*columns):
        if kind == Kind.SEGMENT_ALLOC:
            live[address] = (address + size, stream)
        else:
            live.pop(address, None)
    ranges: list[tuple[int, int, int]] = []
    for address, (end, stream) in sorted(live.items()):
        if join and ranges and ranges[-1][1:] == (address, stream):
            ranges[-1] = (ranges[-1][0], end, stream)
        else:
            ranges.append((address, end, stream))
    return ranges


def _is_expandable(trace: Trace, blocks: Blocks) -> bool:
    """Whether a block extends beyond the end of its first segment, which only expandable segments allow."""
    address = trace.columns["object"].astype(np.int64)
    starts, first = np.unique(address[trace.mask(Kind.SEGMENT_ALLOC)]), address[blocks.alloc]
    inside = np.searchsorted(starts, first, "right") < np.searchsorted(starts, first + blocks.bytes, "left")
    return bool(np.any(inside)) if len(starts) else False


def _tiles(start: int, end: int, placed_blocks: list[tuple[int, int, int]], frames: _Frames) -> list[dict[str, Any]]:
    """The blocks of a range of addresses with the gaps between them."""
    blocks: list[dict[str, Any]] = []
    position = start
    for address, size, entry in placed_blocks:
        if address > position:
            blocks.append(_block(position, address - position, "inactive", []))
        blocks.append(_block(address, size, "active_allocated", frames.of(entry)))
        position = address + size
    if end > position:
        blocks.append(_block(position, end - position, "inactive", []))
    return blocks


def _segment(start: int, end: int, stream: int, blocks: list[dict[str, Any]], *, is_expandable: bool) -> dict[str, Any]:
    active = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    return {
        "device": 0,
        "address": start,
        "total_size": end - start,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "stream": stream,
        "segment_type": "large" if end - start > 2 << 20 else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": is_expandable,
        "frames": [],
        "blocks": blocks,
    }


def _block(address: int, size: int, state: str, frames: list[Frame]) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": frames}
