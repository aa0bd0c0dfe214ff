"""Each module's own peak of allocated memory, by part of the step, and what was alive at it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from presim.analysis.memory.blocks import Blocks, Ints, find_blocks
from presim.analysis.time.scopes import merge_numbers
from presim.result import Held, ModulePeak
from presim.trace.schema import Category, Kind, Phase, Trace

_PHASES = (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD)
_SEEN = (Kind.WORK, Kind.COLLECTIVE, Kind.ALLOC, Kind.FREE)


def module_peaks(trace: Trace, entries: slice, allocated: Ints) -> list[ModulePeak]:
    """The peaks within ``entries`` by module path and phase, parents before children, in the order of first use.

    A module runs in a stretch of entries whose scopes are its own or its submodules'. The figures are those of the
    fullest stretch among numbered siblings and repeated calls.
    """
    start, stop, _ = entries.indices(len(trace))
    rows = np.flatnonzero(trace.mask(*_SEEN)[start:stop]) + start
    scope, phase = (trace.columns[name][rows].astype(np.int64) for name in ("scope", "phase"))
    is_named = (scope >= 0) & np.isin(phase, _PHASES)
    rows, scope, phase = rows[is_named], scope[is_named], phase[is_named]
    if not len(rows):
        return []
    blocks, stretches = find_blocks(trace), _fullest_stretches(trace, rows, scope, phase, allocated)
    first_use = {path: index for index, path in reversed(list(enumerate(path for path, _ in stretches)))}
    order = sorted(stretches, key=lambda key: (_branch(key[0], first_use), _PHASES.index(key[1])))
    freed = trace.columns["kind"] == Kind.FREE
    return [_peak(key, *stretches[key], blocks, allocated, freed) for key in order]


def _fullest_stretches(
    trace: Trace, rows: Ints, scope: Ints, phase: Ints, allocated: Ints
) -> dict[tuple[str, Phase], tuple[int, int, int, int]]:
    """By merged path and phase: entry of the peak, first and last entry of its stretch, number of paths merged."""
    parts = [path.split(".") for path in trace.scopes]
    fullest: dict[tuple[str, Phase], tuple[int, int, int, int]] = {}
    instances: dict[tuple[str, Phase], set[str]] = {}
    for depth in range(1, 1 + max(len(names) for names in parts)):
        paths = [".".join(names[:depth]) if len(names) >= depth else "" for names in parts]
        numbers = {path: index for index, path in enumerate(dict.fromkeys(paths))}
        module = np.array([numbers[path] for path in paths], np.int64)[scope]
        begins = np.flatnonzero(np.diff(module * len(Phase) + phase, prepend=-1))
        for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(rows)]):
            path = paths[scope[begin]]
            if path:
                key = (merge_numbers(path), Phase(int(phase[begin])))
                instances.setdefault(key, set()).add(path)
                peak = int(rows[begin + int(np.argmax(allocated[rows[begin:end]]))])
                if key not in fullest or allocated[peak] > allocated[fullest[key][0]]:
                    fullest[key] = (peak, int(rows[begin]), int(rows[end - 1]), 0)
    return {key: (*stretch[:3], len(instances[key])) for key, stretch in fullest.items()}


def _branch(path: str, first_use: dict[str, int]) -> list[int]:
    """Position in the tree: of each ancestor and the module itself, when it was first used."""
    names = path.split(".")
    return [first_use.get(".".join(names[: depth + 1]), 0) for depth in range(len(names))]


def _peak(
    key: tuple[str, Phase],
    peak: int,
    first: int,
    last: int,
    instances: int,
    blocks: Blocks,
    allocated: Ints,
    freed: NDArray[np.bool_],
) -> ModulePeak:
    while last + 1 < len(freed) and freed[last + 1]:
        last += 1  # what the module drops when it returns
    live = blocks.live_at(peak)
    categories, sizes = blocks.categories_at(peak)[live], blocks.bytes[live]
    bytes_by_category = [
        Held(Category(value).name.lower(), int(sizes[categories == value].sum()), int((categories == value).sum()))
        for value in np.unique(categories).tolist()
    ]
    is_new = blocks.alloc[live] >= first
    return ModulePeak(
        path=key[0],
        depth=key[0].count("."),
        instances=instances,
        phase=key[1].name.lower(),
        peak_bytes=int(allocated[peak]),
        before_bytes=int(allocated[first - 1]) if first else 0,
        after_bytes=int(allocated[last]),
        new_bytes=int(sizes[is_new].sum()),
        alive=sorted(bytes_by_category, key=lambda row: (-row.bytes, row.name)),
    )
