"""Allocated memory of a simulated rank by category over the step, and the blocks that are live at a moment of it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from presim.analysis.memory.blocks import allocated_bytes, find_blocks
from presim.analysis.memory.peaks import device_clock_ns
from presim.analysis.time.steps import find_steps
from presim.app.view.panes import Shown, tracks_of
from presim.errors import InputError
from presim.trace.schema import Category, Phase, Trace

_MOST_POINTS = 400
_MOST_BLOCKS = 50


def over_time(shown: Shown, rank: int) -> dict[str, Any]:
    """Bytes of each category at the fullest moment of each interval of the steady step, and those moments' entries.

    Raises:
        InputError: the rank was not simulated.
    """
    trace, timeline = _trace(shown, rank), shown.evaluation.timelines[rank]
    start, stop, _ = find_steps(trace, timeline).steady.entries.indices(len(trace))
    allocated = allocated_bytes(trace)
    edges = np.unique(np.linspace(start, stop, min(_MOST_POINTS, stop - start) + 1).astype(np.int64))
    moments = np.array(
        [first + np.argmax(allocated[first:last]) for first, last in itertools.pairwise(edges)], np.int64
    )
    clock_ns = device_clock_ns(trace, timeline)
    entry, category, change = find_blocks(trace).changes(trace)
    by_category = {}
    for member in Category:
        is_member = category == member
        totals = np.concatenate([[0], np.cumsum(change[is_member])])
        sizes = totals[np.searchsorted(entry[is_member], moments, "right")]
        if sizes.any():
            by_category[_word(member)] = sizes.tolist()
    return {
        "rank": rank,
        "ranks": sorted(shown.tracks),
        "entries": moments.tolist(),
        "time_s": ((clock_ns[moments] - clock_ns[start]) / 1e9).tolist() if moments.size else [],
        "categories": by_category,
        "peak": int(moments[np.argmax(allocated[moments])]) if moments.size else None,
    }


def live(shown: Shown, rank: int, entry: int) -> dict[str, Any]:
    """The blocks that are live after an entry of the trace, the largest first, with what allocated them.

    Raises:
        InputError: the rank was not simulated, or has no such entry.
    """
    trace = _trace(shown, rank)
    if not 0 <= entry < len(trace):
        raise InputError(f"rank {rank} has {len(trace):,} entries, numbered from 0, and no entry {entry}")
    blocks = find_blocks(trace)
    indices = blocks.live_at(entry)
    category = blocks.categories_at(entry)
    largest = indices[np.argsort(-blocks.bytes[indices], kind="stable")][:_MOST_BLOCKS]
    rows = [
        {
            "bytes": int(blocks.bytes[index]),
            "category": _word(Category(category[index])),
            **_origin(trace, int(blocks.alloc[index])),
            "is_freed": bool(blocks.free[index] < len(trace)),
        }
        for index in largest.tolist()
    ]
    return {"entry": entry, "count": int(indices.size), "bytes": int(blocks.bytes[indices].sum()), "blocks": rows}


def _origin(trace: Trace, entry: int) -> dict[str, str]:
    """What allocated a block, from the operator outwards, as far as the trace has it."""
    operator, scope, phase = (int(trace.columns[name][entry]) for name in ("operator", "scope", "phase"))
    return {
        "operator": trace.operators[operator] if operator >= 0 else "",
        "module": trace.scopes[scope] if scope >= 0 else "",
        "phase": Phase(phase).name.lower(),
    }


def _trace(shown: Shown, rank: int) -> Trace:
    tracks_of(shown, rank)  # refuses a rank that was not simulated
    return shown.evaluation.ranks[rank].trace


def _word(category: Category) -> str:
    return category.name.lower().replace("_", " ")
