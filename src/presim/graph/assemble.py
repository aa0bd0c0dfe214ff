"""From placed templates to a trace: columns are laid end to end, names become addresses and recordings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.graph.blocks import Placed
from presim.graph.rows import Tables
from presim.graph.schedule import Key
from presim.trace.schema import COLUMNS, Kind, Manifest, Trace

_APART = 1 << 34  # bytes between the addresses of two blocks of memory


def assemble(placed: Sequence[Placed], repeat: Sequence[Placed], times: int, tables: Tables, manifest: Manifest, root: str) -> Trace:
    """The trace of what is done once and of ``times`` steps that are alike."""
    scopes: dict[str, int] = {}
    names: dict[Key, int] = {}
    before = _columns(placed, scopes, names, root)
    step = _columns(repeat, scopes, names, root)
    columns = {name: np.concatenate([before[name], *[step[name]] * times]) for name in step}
    kind = columns["kind"]
    objects = _objects(columns, kind)
    steps = kind == Kind.STEP
    objects[steps] = np.arange(int(steps.sum()))
    collective = kind == Kind.COLLECTIVE
    objects[collective] = np.arange(1, int(collective.sum()) + 1)
    columns["object"] = objects
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
    from presim.graph.rows import _COLUMNS

    return {name: np.empty(0, np.int64) for name in _COLUMNS}


def _scope(root: str, block: str, scope: str) -> str:
    if scope.startswith("."):
        return ".".join(filter(None, (root, block, scope[1:])))
    return ".".join(filter(None, (root, scope)))


def _objects(columns: dict[str, NDArray[np.int64]], kind: NDArray[np.int64]) -> NDArray[np.int64]:
    """Addresses of blocks, and the serials of recordings: a wait means the last recording of its name."""
    slot = columns.pop("slot")
    objects = np.zeros(len(kind), np.int64)
    memory = np.isin(kind, (Kind.ALLOC, Kind.FREE, Kind.RETAG))
    objects[memory] = (slot[memory] + 1) * _APART
    recorded = np.flatnonzero(kind == Kind.EVENT_RECORD)
    objects[recorded] = np.arange(1, len(recorded) + 1)
    events = np.flatnonzero(np.isin(kind, (Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.EVENT_SYNC)))
    serial: dict[int, int] = {}
    for place, name, is_record in zip(events.tolist(), slot[events].tolist(), (kind[events] == Kind.EVENT_RECORD).tolist()):
        if is_record:
            serial[name] = int(objects[place])
        else:
            objects[place] = serial.get(name, 0)
    return objects
