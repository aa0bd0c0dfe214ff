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
Ints = NDArray[np.int64]


def categorize(columns: Columns, operators: dict[str, int], scopes: Mapping[str, int]) -> Columns:
    """Replace the RETAG entries of a log by one after each ALLOC whose category is known."""
    positions, categories = _categories(columns, operators, buckets=scopes.get(BUCKETS, -2))
    keep = np.flatnonzero(columns["kind"] != Kind.RETAG)
    order = np.concatenate([keep * 2, positions * 2 + 1])
    by_order = np.argsort(order, kind="stable")
    source, added = np.concatenate([keep, positions])[by_order], by_order >= len(keep)
    result = {name: column[source] for name, column in columns.items()}
    result["host_ns"] = _host_ns(columns["host_ns"], keep, source, added)
    result["kind"] = np.where(added, np.uint8(Kind.RETAG), result["kind"])
    result["value"] = result["value"].copy()
    result["value"][added] = categories
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


def _categories(columns: Columns, operators: Mapping[str, int], *, buckets: int) -> tuple[Ints, Ints]:
    """ALLOC entries, ascending, and their categories; blocks without a known category are omitted.

    ``buckets``: the scope that allocates what gradients are reduced in.
    """
    born, died, named = _lifetimes(columns)
    phases, end = columns["phase"].astype(np.int64), len(columns["phase"])
    backward = np.append(np.flatnonzero(phases == Phase.BACKWARD), end)
    next_backward = backward[np.searchsorted(backward, born)]
    first_module = _first(columns["scope"].astype(np.int64) >= 0, 0)
    # A forward pass without modules leaves nothing behind its backward pass.
    first_step_ends = _first(columns["kind"] == Kind.STEP, backward[0])

    # The phase is over when the block is freed. The appended phase is that of blocks that are never freed.
    is_over = (next_backward < died) | (np.append(phases, -1)[died] != phases[born])
    by_lifetime = _lifetime_categories(phases[born], is_over)
    by_operator = _operator_categories(operators)[columns["operator"].astype(np.int64)[born]]
    is_set_up = (born < first_module) & (died > first_step_ends)  # differentiable operators of the set-up
    categories = np.select(
        [named != 0, columns["scope"].astype(np.int64)[born] == buckets, is_set_up, by_operator >= 0],
        [named, Category.COMMUNICATION, Category.OTHER, by_operator],
        by_lifetime,
    )
    is_known = categories != Category.OTHER
    return born[is_known], categories[is_known]


def _lifetimes(columns: Columns) -> tuple[Ints, Ints, Ints]:
    """Blocks [n] as the entry that allocates them, ascending, the entry that frees them, and their name's category.

    Blocks that are not freed end with the log. A block is left out if its address is allocated again before. The first
    name of a block counts; 0: it has none.
    """
    entries = np.flatnonzero(np.isin(columns["kind"], (Kind.ALLOC, Kind.FREE, Kind.RETAG)))
    entries = entries[np.argsort(columns["object"][entries], kind="stable")]
    kinds, objects = columns["kind"][entries], columns["object"][entries]
    bounds, names = np.flatnonzero(kinds != Kind.RETAG), np.flatnonzero(kinds == Kind.RETAG)
    is_alloc = kinds[bounds] == Kind.ALLOC
    has_next = np.append(objects[bounds[1:]] == objects[bounds[:-1]], False)[: len(bounds)]
    is_again = has_next & np.append(is_alloc[1:], False)[: len(bounds)]
    died = np.where(has_next, np.append(entries[bounds[1:]], 0)[: len(bounds)], len(columns["kind"]))

    names = names[names > bounds[0]] if len(bounds) else names[:0]
    owners = np.searchsorted(bounds, names) - 1
    is_owned = is_alloc[owners] & (objects[bounds[owners]] == objects[names])
    owners, first = np.unique(owners[is_owned], return_index=True)
    named = np.zeros(len(bounds), np.int64)
    named[owners] = columns["value"][entries[names[is_owned][first]]].astype(np.int64)

    blocks = np.flatnonzero(is_alloc & ~is_again)
    blocks = blocks[np.argsort(entries[bounds[blocks]])]
    return entries[bounds[blocks]], died[blocks], named[blocks]


def _first(mask: NDArray[np.bool_], default: int) -> int:
    return int(np.argmax(mask)) if mask.any() else int(default)


def _operator_categories(operators: Mapping[str, int]) -> Ints:
    """The category of what each operator allocates, -1 where it has none; the last: no operator."""
    categories = np.full(max(operators.values(), default=-1) + 2, -1, np.int64)
    for name, operator in operators.items():
        if name.startswith(_UNSHARDED_RANGES):
            categories[operator] = Category.PARAMETER
        elif name.startswith(_COMMUNICATION_RANGES):
            categories[operator] = Category.COMMUNICATION
    return categories


def _lifetime_categories(born_phases: Ints, is_over: NDArray[np.bool_]) -> Ints:
    """Categories [n] of unnamed blocks, by their phase and whether the phase was over when the block was freed."""
    is_activation = np.isin(born_phases, _FORWARD) & is_over
    is_temporary = np.isin(born_phases, (*_FORWARD, Phase.BACKWARD, Phase.OPTIMIZER))
    return np.select([is_activation, is_temporary], [Category.ACTIVATION, Category.TEMPORARY], Category.OTHER)
