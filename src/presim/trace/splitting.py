"""Splits a rank that represents others when some of them become slower.

A captured rank that represents others becomes several simulated ranks, one for each kind among the ranks that it
represents. Each is the same trace with the process groups of its own place in the grid of ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence

import msgspec

from presim.errors import InputError
from presim.trace.collective import MESSAGES, Collective
from presim.trace.grids import axes_of, members_of, origin_of
from presim.trace.schema import Group, Trace
from presim.trace.signatures import Signature


def split(
    traces: Sequence[Trace], stands_for: Mapping[int, Sequence[int]], kinds: Mapping[int, Hashable]
) -> tuple[list[Trace], dict[int, list[int]]]:
    """The traces to simulate, and the ranks that each now represents.

    Args:
        traces: of the captured ranks.
        stands_for: captured rank -> the other ranks that it represents.
        kinds: rank -> how it differs; ranks that are not named are as captured.

    Raises:
        InputError: the trace of a rank to be split names groups that form no grid, or parts of other ranks.
    """
    split_traces: list[Trace] = []
    represented: dict[int, list[int]] = {}
    for trace in traces:
        rank = trace.manifest.rank
        parts: dict[Hashable, list[int]] = {kinds.get(rank): [rank]}
        for other in stands_for.get(rank, ()):
            parts.setdefault(kinds.get(other), []).append(other)
        for members in parts.values():
            representative = rank if rank in members else min(members)
            split_traces.append(trace if representative == rank else as_rank(trace, representative))
            if represented_ranks := [other for other in members if other != representative]:
                represented[representative] = represented_ranks
    return sorted(split_traces, key=lambda trace: trace.manifest.rank), represented


def as_rank(trace: Trace, rank: int) -> Trace:
    """The trace as another rank would have it that does the same work in its own groups.

    Raises:
        InputError: see `split`.
    """
    manifest = trace.manifest
    groups = tuple(_group_of_rank(group, manifest.groups, manifest.rank, rank) for group in manifest.groups)
    signatures = tuple(
        _signature_of_rank(signature, manifest.groups, groups, manifest.rank, rank) for signature in trace.signatures
    )
    return dataclasses.replace(
        trace, manifest=msgspec.structs.replace(manifest, rank=rank, groups=groups), signatures=signatures
    )


def _group_of_rank(group: Group, all_groups: Sequence[Group], old: int, new: int) -> Group:
    """The new rank's group of the same kind."""
    if old not in group.ranks or new in group.ranks:
        return group
    grid_group = _grid_around(group, [other for other in all_groups if new not in other.ranks])
    if grid_group is None:
        raise InputError(
            f"rank {new} cannot be simulated apart from rank {old}: the group {group.name!r} of {group.size} ranks "
            f"forms no grid; capture rank {new} as well (--ranks {old},{new})"
        )
    axes = axes_of(grid_group.ranks)
    assert axes is not None
    counterparts = dict(zip(sorted(grid_group.ranks), members_of(origin_of(new, axes), axes)))
    return Group(group.name, tuple(counterparts[member] for member in group.ranks), group.size, group.ordinal)


def _grid_around(group: Group, all_groups: Sequence[Group]) -> Group | None:
    """The smallest group that holds all members and forms a grid: two stages of a pipeline are part of the pipeline."""
    grid_groups = [
        candidate
        for candidate in (group, *all_groups)
        if set(group.ranks) <= set(candidate.ranks) and axes_of(candidate.ranks) is not None
    ]
    return min(grid_groups, key=lambda candidate: len(candidate.ranks), default=None)


def _signature_of_rank(
    signature: Signature, old_groups: Sequence[Group], new_groups: Sequence[Group], old: int, new: int
) -> Signature:
    """The signature as the new rank has it: messages go the same distance.

    Raises:
        InputError: an uneven exchange, whose sizes differ from rank to rank.
    """
    if not isinstance(signature, Collective) or not 0 <= signature.group < len(old_groups):
        return signature
    if signature.splits is not None:
        raise InputError(
            f"rank {new} cannot be simulated apart from rank {old}, whose {signature.kind} has different sizes on "
            f"each rank; capture rank {new} as well (--ranks {old},{new})"
        )
    old_ranks, new_ranks = old_groups[signature.group].ranks, new_groups[signature.group].ranks
    if signature.kind not in MESSAGES or old not in old_ranks or new not in new_ranks or signature.peer < 0:
        return signature
    new_peer = (signature.peer + new_ranks.index(new) - old_ranks.index(old)) % len(old_ranks)
    return signature if new_peer == signature.peer else msgspec.structs.replace(signature, peer=new_peer)
