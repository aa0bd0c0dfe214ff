"""Assign a category to each memory block, once its whole lifetime is known.

A named block (parameter, gradient, optimizer state, input, buffer) has its category from its allocation on. The
category of other blocks follows from their lifetime: a block allocated in a forward pass and still live after it is an
activation; everything else inside a step is temporary.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from presim.trace.schema import BUCKETS, Category, Kind, Phase

_COMMUNICATION_RANGES = ("FSDP::all_gather", "FSDP::post_backward_reduce", "FSDP::reduce_scatter", "c10d::")
_UNSHARDED_RANGES = ("FSDP::all_gather_copy_out",)
_FORWARD = (Phase.FORWARD, Phase.RECOMPUTE)

Columns = dict[str, NDArray[np.generic]]


def categorize(columns: Columns, operators: dict[str, int], scopes: Mapping[str, int]) -> Columns:
    """Replace the RETAG entries of a log by one after each ALLOC whose category is known."""
    categories = _categories(
        columns, {index: name for name, index in operators.items()}, buckets=scopes.get(BUCKETS, -2)
    )
    keep = np.flatnonzero(columns["kind"] != Kind.RETAG)
    positions = np.array(sorted(categories), np.int64)
    order = np.concatenate([keep * 2, positions * 2 + 1])
    source = np.concatenate([keep, positions])[np.argsort(order, kind="stable")]
    added = np.sort(order) % 2 == 1
    result = {name: column[source] for name, column in columns.items()}
    result["host_ns"] = _host_ns(columns["host_ns"], keep, source, added)
    result["kind"] = np.where(added, np.uint8(Kind.RETAG), result["kind"])
    values = np.array([categories[int(index)] for index in source[added]], np.int64)
    result["value"] = result["value"].copy()
    result["value"][added] = values
    return result


def _host_ns(
    host_ns: NDArray[np.generic], keep: NDArray[np.int64], source: NDArray[np.int64], added: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Add the CPU time before a removed entry to the next remaining one."""
    spent = np.cumsum(host_ns.astype(np.int64))
    remaining_host_ns = np.diff(spent[keep], prepend=0)
    result = np.zeros(len(source), np.int64)
    result[~added] = remaining_host_ns
    return result


def _categories(columns: Columns, operator_names: dict[int, str], *, buckets: int) -> dict[int, int]:
    """Index of an ALLOC entry -> category; blocks without a known category are omitted.

    ``buckets``: the scope that allocates what gradients are reduced in.
    """
    kinds, objects, values = (columns[name].tolist() for name in ("kind", "object", "value"))
    phases, operators = columns["phase"].tolist(), columns["operator"].tolist()
    backward = np.append(np.flatnonzero(columns["phase"] == Phase.BACKWARD), len(phases))
    next_backward = backward[np.searchsorted(backward, np.arange(len(phases)))].tolist()  # by entry

    scopes = columns["scope"].tolist()
    first_module = _first(columns["scope"].astype(np.int64) >= 0, 0)
    # A forward pass without modules leaves nothing behind its backward pass.
    first_step_ends = _first(columns["kind"] == Kind.STEP, backward[0])

    def category_of(born: int, died: int) -> int:
        if scopes[born] == buckets:
            return Category.COMMUNICATION
        if born < first_module and died > first_step_ends:  # differentiable operators of the set-up
            return Category.OTHER
        survives_forward = next_backward[born] < died
        over = survives_forward or died == len(phases) or phases[died] != phases[born]
        return _lifetime_category(phases[born], over, operator_names.get(operators[born]))

    live: dict[int, int] = {}
    named: dict[int, int] = {}
    result: dict[int, int] = {}
    for index in np.flatnonzero(np.isin(columns["kind"], (Kind.ALLOC, Kind.FREE, Kind.RETAG))).tolist():
        address = objects[index]
        if kinds[index] == Kind.ALLOC:
            live[address] = index
        elif kinds[index] == Kind.RETAG:
            if (born := live.get(address)) is not None:
                named.setdefault(born, values[index])
        elif (born := live.pop(address, None)) is not None:
            result[born] = named.get(born) or category_of(born, index)
    for born in live.values():
        result[born] = named.get(born) or category_of(born, len(phases))
    return {index: category for index, category in result.items() if category != Category.OTHER}


def _first(mask: NDArray[np.bool_], default: int) -> int:
    return int(np.argmax(mask)) if mask.any() else int(default)


def _lifetime_category(born: int, over: bool, operator: str | None) -> int:
    """Category of an unnamed block, by its phase and whether the phase was over when the block was freed."""
    if operator and operator.startswith(_UNSHARDED_RANGES):
        return Category.PARAMETER
    if operator and operator.startswith(_COMMUNICATION_RANGES):
        return Category.COMMUNICATION
    if born in _FORWARD:
        return Category.ACTIVATION if over else Category.TEMPORARY
    if born in (Phase.BACKWARD, Phase.OPTIMIZER):
        return Category.TEMPORARY
    return Category.OTHER
