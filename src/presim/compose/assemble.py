"""From placed templates to a trace: columns are laid end to end, names become addresses and recordings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.compose.allocator import replay_columns
from presim.compose.blocks import Placed
from presim.compose.rows import COLUMNS as ROW_COLUMNS
from presim.compose.rows import Tables
from presim.compose.schedule import Key
from presim.trace.schema import COLUMNS, Kind, Manifest, Trace


def assemble(
    setup: Sequence[Placed], steps: Sequence[Sequence[Placed]], tables: Tables, manifest: Manifest, root: str
) -> Trace:
    """The trace of what is done once, and of steps."""
    scopes: dict[str, int] = {}
    names: dict[Key, int] = {}
    made: dict[int, dict[str, NDArray[np.int64]]] = {}
    parts = []
    for placed in (setup, *steps):
        if id(placed) not in made:
            made[id(placed)] = _columns(placed, scopes, names, root)
        parts.append(made[id(placed)])
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[-1]}
    columns = _with_memory(columns)
    kind, objects = columns["kind"], columns["object"]
    _number_events(columns)
    for counted, first in ((Kind.STEP, 0), (Kind.COLLECTIVE, 1)):
        chosen = kind == counted
        objects[chosen] = np.arange(first, first + int(chosen.sum()))
    columns["site"] = np.full(len(kind), -1)
    known = ~((kind == Kind.STREAM_WAIT) & (objects == 0))  # nothing has been recorded that could be waited for
    finished = {name: columns[name][known].astype(dtype) for name, dtype in COLUMNS.items()}
    return Trace(manifest, tuple(tables.signatures), tuple(scopes), tuple(tables.operators), finished)


def _columns(
    placed: Sequence[Placed], scopes: dict[str, int], names: dict[Key, int], root: str
) -> dict[str, NDArray[np.int64]]:
    parts: dict[str, list[NDArray[np.int64]]] = {}
    for one in placed:
        columns = one.template.columns
        where = [scopes.setdefault(_scope(root, one.scope, scope), len(scopes)) for scope in one.template.scopes]
        own = scopes.setdefault(_scope(root, one.scope, "."), len(scopes)) if one.scope else -1
        keys = [names.setdefault(key, len(names)) for key in one.keys]
        for name, column in columns.items():
            if name == "scope":
                column = np.array([*where, own])[column]  # -1 is the last
            elif name == "slot":
                column = np.array([*keys, -1])[column]
            parts.setdefault(name, []).append(column)
    return {name: np.concatenate(columns) for name, columns in parts.items()} if parts else _empty()


def _empty() -> dict[str, NDArray[np.int64]]:
    return {name: np.empty(0, np.int64) for name in ROW_COLUMNS}


def _scope(root: str, block: str, scope: str) -> str:
    if scope.startswith("."):
        return ".".join(filter(None, (root, block, scope[1:])))
    return ".".join(filter(None, (root, scope)))


def _with_memory(columns: dict[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
    """Blocks have the addresses and sizes that the allocator gives them; where it takes a segment, an entry says so."""
    kind, slot, value = columns["kind"], columns["slot"], columns["value"]
    rows = np.flatnonzero(np.isin(kind, (Kind.ALLOC, Kind.FREE, Kind.RETAG)))
    given = (column[rows] for column in (kind, slot, value, columns["stream"]))
    addresses, held, segments = replay_columns(*given)
    columns["stream"][rows] = 0  # the host asks, whatever stream a block is for
    objects = np.zeros(len(kind), np.int64)
    objects[rows] = addresses
    columns["object"] = objects
    sized = kind[rows] != Kind.RETAG
    value[rows[sized]] = held[sized]
    places = rows[[place for place, _, _ in segments]] if segments else np.zeros(0, np.int64)
    grown = {name: np.insert(column, places, column[places]) for name, column in columns.items()}
    at = places + np.arange(len(places))
    for name, values in (
        ("kind", int(Kind.SEGMENT_ALLOC)),
        ("object", [address for _, address, _ in segments]),
        ("value", [size for _, _, size in segments]),
        ("host_ns", 0),
        ("slot", -1),
    ):
        grown[name][at] = values
    return grown


def _number_events(columns: dict[str, NDArray[np.int64]]) -> None:
    """Recordings are numbered; a wait means the last recording of its name."""
    kind, slot, objects = columns["kind"], columns.pop("slot"), columns["object"]
    recorded = np.flatnonzero(kind == Kind.EVENT_RECORD)
    objects[recorded] = np.arange(1, len(recorded) + 1)
    events = np.flatnonzero(np.isin(kind, (Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.EVENT_SYNC)))
    is_record = (kind[events] == Kind.EVENT_RECORD).tolist()
    serial: dict[int, int] = {}
    for place, name, records in zip(events.tolist(), slot[events].tolist(), is_record):
        if records:
            serial[name] = int(objects[place])
        else:
            objects[place] = serial.get(name, 0)
