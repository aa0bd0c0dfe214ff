"""Changes the number of ranks that share the parameters of a captured job, by two captures of different size."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.allocator_pools import pools_of
from presim.composition.replan.layer_growth import with_growth
from presim.composition.replan.object_names import definitions
from presim.composition.replan.rank_laws import RankNumbers, calls_of, factors_between
from presim.composition.replan.replayed_memory import with_replayed_memory
from presim.composition.replan.reserved_check import sentences_on_reserved
from presim.composition.replan.shard_padding import check_padding
from presim.errors import InputError
from presim.trace.grids import axes_of
from presim.trace.rescale import Digit, at_digit, narrowest, ranks_at_digit
from presim.trace.schema import Kind, Manifest, Trace

Ints = NDArray[np.int64]


def with_ranks(
    smaller: Sequence[Trace], wider: Sequence[Trace], stands_for: Mapping[int, Sequence[int]], world_size: int
) -> tuple[list[Trace], dict[int, list[int]], list[str]]:
    """The traces of a job on more ranks, the ranks that each represents, and sentences for the reader.

    ``smaller`` and ``wider``: two captures of it, with one trace for each kind of rank. ``stands_for``: the ranks that
    those of the wider one represent.

    Raises:
        InputError: the captures do not show what another number of ranks does.
    """
    smaller_size, wider_size = smaller[0].manifest.world_size, wider[0].manifest.world_size
    _check_sizes(smaller_size, wider_size, world_size)
    digit = shared_digit(smaller, wider)
    model_ranks = wider_size // digit.size
    if world_size % model_ranks:
        raise InputError(f"the model takes {model_ranks} ranks, and {world_size} is no multiple of it; choose one")
    size = world_size // model_ranks
    numbers = RankNumbers(smaller_size // model_ranks, digit.size, size)
    check_padding(wider, digit.size, size, world_size)
    traces = [
        _at_size(trace, of_wider, digit, numbers)
        for trace, of_wider in zip(_by_rank(smaller), _by_rank(wider), strict=True)
    ]
    sentence = (
        f"Extended from {digit.size} to {size} ranks of {digit.group!r}: each size is the same with {numbers.smaller} "
        f"and {digit.size} of them, or a share of one whole, without what further ranks pad. Host times are those of "
        f"{digit.size}."
    )
    return traces, ranks_at_digit(wider, stands_for, digit, size), [sentence, *sentences_on_reserved(wider)]


def _by_rank(traces: Sequence[Trace]) -> list[Trace]:
    return sorted(traces, key=lambda trace: trace.manifest.rank)


def _check_sizes(smaller_size: int, wider_size: int, world_size: int) -> None:
    if wider_size <= smaller_size:
        raise InputError(
            f"the wider capture has {wider_size} ranks and the other {smaller_size}; give --wider a capture with "
            f"more, such as {2 * smaller_size}"
        )
    if world_size < wider_size:
        raise InputError(
            f"the job was captured with {wider_size} ranks and cannot be cut to {world_size}; ask for more"
        )


def shared_digit(smaller: Sequence[Trace], wider: Sequence[Trace]) -> Digit:
    """The digit of ranks that has more values in the wider capture.

    Raises:
        InputError: there is none, or several.
    """
    if len(smaller) != len(wider):
        raise InputError(
            f"one capture has {len(smaller)} kinds of ranks and the wider one {len(wider)}; capture the same ranks"
        )
    axes: dict[tuple[int, int], str] = {}
    for trace, of_wider in zip(_by_rank(smaller), _by_rank(wider)):
        groups, wider_groups = trace.manifest.groups, of_wider.manifest.groups
        if [group.name for group in groups] != [group.name for group in wider_groups]:
            raise InputError("the wider capture has other process groups than the job; capture the same program twice")
        for group, wider_group in zip(groups, wider_groups):
            steps = axes_of(wider_group.ranks) if group.size != wider_group.size else None
            if steps is not None and len(steps) == 1:
                axes.setdefault(steps[0], group.name)
    narrow = narrowest(axes)
    if len(narrow) != 1:
        names = ", ".join(repr(name) for name in narrow.values()) or "none"
        raise InputError(
            f"between the captures, groups of one kind have to grow, and these do: {names}; change only the number of "
            "data-parallel ranks"
        )
    ((stride, size), name) = next(iter(narrow.items()))
    return Digit(stride, size, name)


def _at_size(trace: Trace, wider: Trace, digit: Digit, numbers: RankNumbers) -> Trace:
    calls = calls_of(wider)
    factors = factors_between(calls_of(trace), calls, numbers)
    bare, positions = _without_segments(wider)
    entries = np.arange(len(calls.entries))
    grown = with_growth(bare, entries, entries.tolist(), factors)
    pools = pools_of(wider, calls.scopes, calls.operators)[calls.entries]
    replayed, later_positions = with_replayed_memory(grown, pools)
    manifest = _manifest(trace.manifest, wider.manifest, later_positions[positions], numbers)
    return at_digit(dataclasses.replace(replayed, manifest=manifest), digit, numbers.target)


def _without_segments(trace: Trace) -> tuple[Trace, Ints]:
    """The trace without the allocator's own calls, with a number for each block, and where its entries are."""
    remains = ~trace.mask(Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE)
    is_block = trace.mask(Kind.ALLOC, Kind.FREE, Kind.RETAG)
    objects = np.where(is_block, definitions(trace), trace.columns["object"].astype(np.int64))
    columns = {name: column[remains] for name, column in {**trace.columns, "object": objects}.items()}
    return dataclasses.replace(trace, columns=columns), np.concatenate([[0], np.cumsum(remains)])


def _manifest(smaller: Manifest, wider: Manifest, positions: Ints, numbers: RankNumbers) -> Manifest:
    """The manifest with what numbers of ranks change. What PyTorch itself counted of its memory holds no longer."""
    facts = wider.step
    phases = tuple(msgspec.structs.replace(phase, end=int(positions[phase.end])) for phase in facts.phases)
    step = msgspec.structs.replace(facts, begin=int(positions[facts.begin]), phases=phases)
    factors = {
        name: numbers.factor(smaller.model.get(name, 0), number, (0.002 * number, 0.002 * number))
        for name, number in wider.model.items()
    }
    model = {name: round(wider.model[name] * factor) for name, factor in factors.items() if factor is not None}
    batch = dict(wider.batch)
    if "data_parallel_ranks" in batch:
        batch["data_parallel_ranks"] = batch["data_parallel_ranks"] * numbers.target // numbers.larger
    measured = wider.measured and msgspec.structs.replace(wider.measured, step_ns=0)
    return msgspec.structs.replace(wider, step=step, model=model, batch=batch, allocator={}, measured=measured)
