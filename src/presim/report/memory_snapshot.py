"""The allocator's history as a snapshot that pytorch.org/memory_viz opens.

The layout is that of ``torch.cuda.memory._snapshot()``. That viewer reads pickles, so one is written here, of plain
dicts, lists, tuples, strings and numbers; presim itself never reads a pickle.
"""

from __future__ import annotations

import bisect
import os
import pickle
from typing import Any

from presim.analysis.blocks import Blocks, find_blocks
from presim.analysis.memory import device_clock_ns
from presim.engine.timeline import Timeline
from presim.report.files import write_file
from presim.trace.schema import Category, Kind, Phase, Trace

Frame = dict[str, Any]


def write(trace: Trace, timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write the snapshot of one rank to a file."""
    write_file(path, pickle.dumps(snapshot(trace, timeline), protocol=4))


def snapshot(trace: Trace, timeline: Timeline) -> dict[str, Any]:
    """The allocator's events and what was live at the end, as plain data."""
    blocks = find_blocks(trace)
    frames = _Frames(trace, blocks)
    return {
        "segments": _segments(trace, blocks, frames),
        "device_traces": [_events(trace, timeline, frames)],
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
        """The frames of the block that this entry handed out."""
        operator, scope, phase = (column[entry] for column in self._columns)
        key = (operator, scope, phase, self._category.get(entry, 0))
        if key not in self._known:
            self._known[key] = self._frames(*key)
        return self._known[key]

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


def _events(trace: Trace, timeline: Timeline, frames: _Frames) -> list[dict[str, Any]]:
    """The allocator's events in order, in microseconds of the device's clock."""
    handed_out: dict[int, int] = {}  # address -> entry of its latest ALLOC
    events: list[dict[str, Any]] = []
    clock = (device_clock_ns(trace, timeline) // 1000).tolist()
    columns = [trace.columns[name].tolist() for name in ("kind", "stream", "object", "value")]
    for entry, (kind, stream, address, size) in enumerate(zip(*columns)):
        if kind == Kind.ALLOC:
            handed_out[address] = entry
        stack = frames.of(handed_out[address]) if kind in (Kind.ALLOC, Kind.FREE) and address in handed_out else []
        for action in _ACTIONS.get(Kind(kind), ()):
            events.append(
                {
                    "action": action,
                    "addr": address,
                    "size": size,
                    "stream": stream,
                    "time_us": clock[entry],
                    "frames": stack,
                }
            )
    return events


def _segments(trace: Trace, blocks: Blocks, frames: _Frames) -> list[dict[str, Any]]:
    """Live segments at the end of the trace, each tiled by its blocks and the gaps between them."""
    live = blocks.live_at(len(trace) - 1).tolist()
    address = trace.columns["object"].tolist()
    held = sorted((address[blocks.alloc[index]], int(blocks.bytes[index]), int(blocks.alloc[index])) for index in live)
    starts = [start for start, _, _ in held]
    segments = []
    for start, end in _live_ranges(trace, held):
        inside = held[bisect.bisect_left(starts, start) : bisect.bisect_left(starts, end)]
        segments.append(_segment(start, end, inside, frames))
    return segments


def _live_ranges(trace: Trace, held: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Address ranges of live segments; pieces of an expandable segment are joined where a block spans them."""
    live: dict[int, int] = {}
    chosen = trace.mask(Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)
    columns = [trace.columns[name][chosen].tolist() for name in ("kind", "object", "value")]
    for kind, address, size in zip(*columns):
        if kind == Kind.SEGMENT_ALLOC:
            live[address] = size
        else:
            live.pop(address, None)
    inner = {address for address in live if _spanned(address, held)}
    ranges: list[tuple[int, int]] = []
    for address in sorted(live):
        end = address + live[address]
        if address in inner and ranges and ranges[-1][1] == address:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((address, end))
    return ranges


def _spanned(address: int, held: list[tuple[int, int, int]]) -> bool:
    """Whether some live block begins before the address and ends after it."""
    index = bisect.bisect_left(held, (address, 0, 0)) - 1
    return index >= 0 and held[index][0] + held[index][1] > address


def _segment(start: int, end: int, held: list[tuple[int, int, int]], frames: _Frames) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    position = start
    for address, size, entry in held:
        if address > position:
            blocks.append(_block(position, address - position, "inactive", []))
        blocks.append(_block(address, size, "active_allocated", frames.of(entry)))
        position = address + size
    if end > position:
        blocks.append(_block(position, end - position, "inactive", []))
    active = sum(size for _, size, _ in held)
    return {
        "device": 0,
        "address": start,
        "total_size": end - start,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "stream": 0,
        "segment_type": "large" if end - start > 2 << 20 else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def _block(address: int, size: int, state: str, frames: list[Frame]) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": frames}
