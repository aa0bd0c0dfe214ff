"""Finds the parts of a trace that repeat with each layer: forward and backward passes, lists of parameters, updates."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.cycles import content_numbers
from presim.composition.replan.layer_names import Names
from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]
_CANDIDATES = 64  # distances between equal calls that are tried as periods, for each number of calls between
_MOST_ALIKE = 12  # equal calls of a layer
_UNSPLIT_BYTES = 1 << 20  # PyTorch leaves a large block whole if no more than this remains


@dataclasses.dataclass(frozen=True, eq=False)
class Regions:
    """Parts of equal repetitions, one for each layer, among a trace's calls."""

    begins: Ints  # first call [regions]
    periods: Ints  # calls of a repetition
    counts: Ints  # repetitions
    steps: Ints  # of the layer's number from one repetition to the next: 1 or -1; 0: no call names its layer

    def coordinates(self, num_calls: int) -> tuple[Ints, Ints, Ints]:
        """Region, repetition and position in it of each call; the region is -1 outside of all."""
        region, repetition, position = (np.full(num_calls, -1, np.int64) for _ in range(3))
        for number, (begin, period, count) in enumerate(zip(self.begins, self.periods, self.counts)):
            part = slice(begin, begin + period * count)
            region[part] = number
            repetition[part], position[part] = np.divmod(np.arange(period * count), period)
        return region, repetition, position


def find_regions(
    trace: Trace, calls: Ints, scopes: Names, operators: Names, num_layers: int, further: int = 0
) -> Regions:
    """The regions of ``calls``, longest first and without overlap, in ascending order.

    ``further``: repetitions of what names no layer that there may be for other modules, as waits for the buckets of
    gradients of the embedding and the output layer.
    """
    contents, layers, sizes = _contents(trace, calls, scopes, operators)
    is_work = trace.columns["kind"][calls] == Kind.WORK
    candidates: list[tuple[int, int, int, int]] = []  # begin, period, repetitions, step of the layer's number
    _, sized = np.unique(np.stack([contents, sizes]), axis=1, return_inverse=True)
    for period in _candidate_periods(sized.reshape(-1)):
        candidates += _repetitions(contents, layers, sizes, int(period), num_layers, further, is_work)
    is_taken = np.zeros(len(calls), np.bool_)
    regions = []
    for begin, period, count, step in sorted(candidates, key=lambda region: (-region[1] * region[2], region[1])):
        if not is_taken[begin : begin + period * count].any():
            is_taken[begin : begin + period * count] = True
            regions.append((begin, period, count, step))
    columns = np.array(sorted(regions), np.int64).reshape(-1, 4)
    return Regions(*columns.T)


def _contents(trace: Trace, calls: Ints, scopes: Names, operators: Names) -> tuple[Ints, Ints, Ints]:
    """What calls are without the number of their layer, that number, and the bytes they allocate."""
    names = ("kind", "phase", "stream", "signature", "site")
    plain = content_numbers(trace, calls, names)
    scope, operator = (trace.columns[name][calls].astype(np.int64) for name in ("scope", "operator"))
    rows = np.stack([plain, scopes.rests[scope], operators.rests[operator]])
    _, contents = np.unique(rows, axis=1, return_inverse=True)
    layers = np.where(scopes.layers[scope] >= 0, scopes.layers[scope], operators.layers[operator])
    is_block = trace.columns["kind"][calls] == Kind.ALLOC
    return contents.reshape(-1), layers, np.where(is_block, trace.columns["value"][calls].astype(np.int64), 0)


def _candidate_periods(contents: Ints) -> Ints:
    """Distances from calls to the next like them, to the second, and so on, the most frequent of each.

    No call of a layer may be the only one of its kind there, as with parameters of few shapes.
    """
    order = np.argsort(contents, kind="stable")
    periods = []
    for further in range(1, _MOST_ALIKE + 1):
        is_same = contents[order][further:] == contents[order][:-further]
        distances, counts = np.unique((order[further:] - order[:-further])[is_same], return_counts=True)
        periods.append(distances[np.argsort(-counts, kind="stable")[:_CANDIDATES]])
    return np.unique(np.concatenate(periods))


def _repetitions(
    contents: Ints, layers: Ints, sizes: Ints, period: int, num_layers: int, further: int, is_work: NDArray[np.bool_]
) -> list[tuple[int, int, int, int]]:
    """Runs in which each call is as the one a period later, in the next layer or the one before, or without one.

    With ``further``, launches alone are no parts of layers but of lists of tensors, whose lengths follow other laws.
    """
    if period >= len(contents):
        return []
    difference = np.abs(sizes[period:] - sizes[:-period])
    is_equal = (contents[period:] == contents[:-period]) & (
        difference <= np.where(sizes[:-period] > _UNSPLIT_BYTES, _UNSPLIT_BYTES, 0)
    )
    moves = np.where(layers[:-period] >= 0, layers[period:] - layers[:-period], 0)
    regions = []
    for step in (1, -1, 0):
        is_repeated = is_equal & ((moves == step) | (layers[:-period] < 0) if step else layers[:-period] < 0)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], is_repeated.astype(np.int8), [0]])))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist()):
            count = (end - begin) // period + 1
            has_layer = bool((layers[begin : end + period] >= 0).any())
            least = 2 if step else num_layers - bool(further)  # fewer may be equal parts of one layer
            largest = num_layers if step else num_layers + further
            is_list = not step and bool(further) and bool(is_work[begin : end + period].all())
            if least <= count <= largest and has_layer == bool(step) and not is_list:
                regions.append((begin, period, count, step))
    return regions
