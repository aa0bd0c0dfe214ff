"""Assemble a trace from placed templates: concatenate columns, and turn names into addresses and event recordings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.composition.all_memory import Lacks, all_memory, without_memory
from presim.composition.allocator import replay_columns
from presim.composition.block_templates import Placed
from presim.composition.entry_templates import COLUMNS as ROW_COLUMNS
from presim.composition.entry_templates import NO_SLOT, Tables
from presim.composition.names import Ints, Names
from presim.composition.side_by_side import entry_order
from presim.trace.schema import COLUMNS, Kind, Manifest, Trace

_POINTS = ("signature", "operator", "site")  # columns of indices: -1 for none
FLAGS = ("begins", "of_all")  # per-entry flags during assembly: see `Placed`


@dataclasses.dataclass(frozen=True)
class Assembled:
    """A trace, the entries at which its micro-batches begin, and its memory events."""

    trace: Trace
    begins: Ints
    memory: Trace  # memory events of all micro-batches if the trace omits some; else the trace itself


def assemble(
    setup: Placed,
    steps: Sequence[Placed],
    names: Names,
    tables: Tables,
    manifest: Manifest,
    root: str,
    lacks: Lacks | None = None,
) -> Assembled:
    """Build the trace from setup and steps. ``lacks``: the micro-batches that steps omit."""
    scopes: dict[str, int] = {}
    columns_by_part: dict[int, dict[str, NDArray[Any]]] = {}
    parts = []
    for placed in (setup, *steps):
        if id(placed) not in columns_by_part:
            columns_by_part[id(placed)] = _columns(placed, scopes, names, root)
        parts.append(columns_by_part[id(placed)])
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[-1]}
    memory = _with_memory(all_memory(parts, names, lacks)) if lacks else {}
    columns = without_memory(columns) if lacks else _with_memory(columns)
    kind, objects = columns["kind"], columns["object"]
    _number_events(columns)
    begins = columns.pop("begins")
    for counted, first in ((Kind.STEP, 0), (Kind.COLLECTIVE, 1)):
        entry_indices = np.flatnonzero(kind == counted)
        objects[entry_indices] = np.arange(first, first + len(entry_indices))
    columns["site"] = np.full(len(kind), -1, np.int32)
    unknown = np.flatnonzero((kind == Kind.STREAM_WAIT) & (objects == 0))  # waits for an event that was never recorded
    finished = {name: np.delete(columns[name], unknown) if len(unknown) else columns[name] for name in COLUMNS}
    trace = Trace(manifest, tuple(tables.signatures), tuple(scopes), tuple(tables.operators), finished)
    memory_trace = dataclasses.replace(trace, columns=_fill_columns(memory)) if memory else trace
    return Assembled(trace, np.flatnonzero(np.delete(begins, unknown)), memory_trace)


def _columns(placed: Placed, scopes: dict[str, int], names: Names, root: str) -> dict[str, NDArray[Any]]:
    """Concatenate the templates' columns; scope and slot numbers become trace-wide."""
    templates = placed.templates
    if not templates:
        flags = {name: np.empty(0, np.bool_) for name in FLAGS}
        return flags | {name: np.empty(0, dtype) for name, dtype in ROW_COLUMNS.items()}
    columns = {name: np.concatenate([template.columns[name] for template in templates]) for name in ROW_COLUMNS}
    lengths = np.array([len(template) for template in templates], np.int64)
    slots = np.array([len(template.slots) for template in templates], np.int64)
    meant = np.append(names.dense(placed.names), NO_SLOT).astype(np.int32)
    columns["slot"] = meant[_offset_indices(columns["slot"], np.cumsum(slots) - slots, lengths, nothing=len(meant) - 1)]
    # (template, module path) -> trace-wide scope numbers, the path's own first
    numbers_by_template: dict[tuple[int, str], list[int]] = {}
    scope_numbers = []
    for template, prefix in zip(templates, placed.prefixes):
        key = (id(template), prefix)
        if key not in numbers_by_template:
            inner_numbers = [
                scopes.setdefault(_full_scope(root, prefix, scope), len(scopes)) for scope in template.scopes
            ]
            numbers_by_template[key] = [
                scopes.setdefault(_full_scope(root, prefix, "."), len(scopes)) if prefix else -1,
                *inner_numbers,
            ]
        scope_numbers.append(numbers_by_template[key])
    sizes = np.array([len(template_scopes) for template_scopes in scope_numbers], np.int64)
    scope_table = np.array([scope for template_scopes in scope_numbers for scope in template_scopes], np.int32)
    first = np.repeat(np.cumsum(sizes) - sizes + 1, lengths)
    columns["scope"] = scope_table[first + columns["scope"]]  # -1 is the module path itself
    columns["begins"] = np.zeros(len(columns["kind"]), np.bool_)
    columns["begins"][list(placed.begins)] = True
    of_all = np.zeros(len(templates), np.bool_)
    of_all[list(placed.of_all)] = True
    columns["of_all"] = np.repeat(of_all, lengths)
    if not placed.side_by_side:
        return columns
    order = entry_order(columns["kind"], columns["stream"], placed.side_by_side)
    return {name: column[order] for name, column in columns.items()}


def _offset_indices(local: NDArray[Any], firsts: Ints, lengths: Ints, nothing: int) -> Ints:
    """Convert template-local indices to indices into the concatenation."""
    result: Ints = np.where(local < 0, nothing, np.repeat(firsts, lengths) + local)
    return result


def _full_scope(root: str, block: str, scope: str) -> str:
    if scope.startswith("."):
        return ".".join(filter(None, (root, block, scope[1:])))
    return ".".join(filter(None, (root, scope)))


def _with_memory(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Replay the allocator: fill in addresses and sizes of blocks, and insert an entry for each new segment."""
    kind, slot, value = columns["kind"], columns["slot"], columns["value"]
    rows = np.flatnonzero(_kinds(Kind.ALLOC, Kind.FREE, Kind.RETAG)[kind])
    requests = (column[rows] for column in (kind, slot, value, columns["stream"]))
    addresses, block_bytes, segments = replay_columns(*requests)
    columns["stream"][rows] = 0  # allocations are host entries, whatever stream the block is for
    objects = np.zeros(len(kind), np.int64)
    objects[rows] = addresses
    columns["object"] = objects
    sized = kind[rows] != Kind.RETAG
    value[rows[sized]] = block_bytes[sized]
    places = rows[[entry_index for entry_index, _, _ in segments]] if segments else rows[:0]
    segment_positions = places + np.arange(len(places))
    grown = {
        name: _duplicate_entries(columns.pop(name), places) for name in list(columns)
    }  # one by one: they are large
    for name, values in (
        ("kind", int(Kind.SEGMENT_ALLOC)),
        ("object", [address for _, address, _ in segments]),
        ("value", [size for _, _, size in segments]),
        ("host_ns", 0),
        ("slot", -1),
        *((name, False) for name in FLAGS),
    ):
        if name in grown:
            grown[name][segment_positions] = values
    return grown


def _duplicate_entries(column: NDArray[Any], places: Ints) -> NDArray[Any]:
    """With each entry at these places twice."""
    grown = np.empty(len(column) + len(places), column.dtype)
    before = 0
    for count, position in enumerate((*places.tolist(), len(column))):
        grown[before + count : position + count] = column[before:position]
        if count < len(places):
            grown[position + count] = column[position]
        before = position
    return grown


def _fill_columns(memory: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """All columns of a trace; those that say nothing of memory have one value, which takes no room."""
    count = len(memory["kind"])
    defaults: dict[str, NDArray[Any]] = {
        name: np.array(-1 if name in _POINTS else 0, dtype) for name, dtype in COLUMNS.items()
    }
    return {name: memory[name] if name in memory else np.broadcast_to(defaults[name], count) for name in COLUMNS}


def _number_events(columns: dict[str, NDArray[Any]]) -> None:
    """Number event recordings; a wait refers to the last recording of its name."""
    kind, slot, objects = columns["kind"], columns.pop("slot"), columns["object"]
    events = np.flatnonzero(_kinds(Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.EVENT_SYNC)[kind])
    records = kind[events] == Kind.EVENT_RECORD
    objects[events[records]] = np.arange(1, int(records.sum()) + 1)
    order = np.argsort(slot[events], kind="stable")
    named, is_record = slot[events][order], records[order]
    last = np.maximum.accumulate(np.where(is_record, np.arange(len(order)), -1))
    is_known = (last >= 0) & (named[last] == named)
    waits = ~is_record
    objects[events[order[waits]]] = np.where(is_known, objects[events[order[last]]], 0)[waits]


def _kinds(*kinds: Kind) -> NDArray[np.bool_]:
    """Boolean table over entry kinds: true for the given ones."""
    table = np.zeros(len(Kind), np.bool_)
    table[list(map(int, kinds))] = True
    return table
