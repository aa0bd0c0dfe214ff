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
    found: list[Trace] = []
    represented: dict[int, list[int]] = {}
    for trace in traces:
        rank = trace.manifest.rank
        parts: dict[Hashable, list[int]] = {kinds.get(rank): [rank]}
        for other in stands_for.get(rank, ()):
            parts.setdefault(kinds.get(other), []).append(other)
        for members in parts.values():
            chosen = rank if rank in members else min(members)
            found.append(trace if chosen == rank else as_rank(trace, chosen))
            if others := [other for other in members if other != chosen]:
                represented[chosen] = others
    return sorted(found, key=lambda trace: trace.manifest.rank), represented


def as_rank(trace: Trace, rank: int) -> Trace:
    """The trace of another rank that does the same: its groups are those of its own place.

    Raises:
        InputError: see `split`.
    """
    manifest = trace.manifest
    groups = tuple(_moved(group, manifest.groups, manifest.rank, rank) for group in manifest.groups)
    signatures = tuple(_seen_from(one, manifest.groups, groups, manifest.rank, rank) for one in trace.signatures)
    return dataclasses.replace(
        trace, manifest=msgspec.structs.replace(manifest, rank=rank, groups=groups), signatures=signatures
    )


def _moved(group: Group, all_groups: Sequence[Group], old: int, new: int) -> Group:
    """The new rank's group of the same kind."""
    if old not in group.ranks or new in group.ranks:
        return group
    whole = _grid_around(group, [one for one in all_groups if new not in one.ranks])
    if whole is None:
        raise InputError(
            f"rank {new} cannot be simulated apart from rank {old}: the group {group.name!r} of {group.size} ranks "
            f"forms no grid; capture rank {new} as well (--ranks {old},{new})"
        )
    axes = axes_of(whole.ranks)
    assert axes is not None
    place = dict(zip(sorted(whole.ranks), members_of(origin_of(new, axes), axes)))
    return Group(group.name, tuple(place[member] for member in group.ranks), group.size, group.ordinal)


def _grid_around(group: Group, all_groups: Sequence[Group]) -> Group | None:
    """The smallest group that holds all members and forms a grid: two stages of a pipeline are part of the pipeline."""
    around = [
        one for one in (group, *all_groups) if set(group.ranks) <= set(one.ranks) and axes_of(one.ranks) is not None
    ]
    return min(around, key=lambda one: len(one.ranks), default=None)


def _seen_from(signature: Signature, before: Sequence[Group], after: Sequence[Group], old: int, new: int) -> Signature:
    """The signature as the new rank has it: messages go the same distance.

    Raises:
        InputError: an uneven exchange, whose sizes differ from rank to rank.
    """
    if not isinstance(signature, Collective) or not 0 <= signature.group < len(before):
        return signature
    if signature.splits is not None:
        raise InputError(
            f"rank {new} cannot be simulated apart from rank {old}, whose {signature.kind} has different sizes on "
            f"each rank; capture rank {new} as well (--ranks {old},{new})"
        )
    here, there = before[signature.group].ranks, after[signature.group].ranks
    if signature.kind not in MESSAGES or old not in here or new not in there or signature.peer < 0:
        return signature
    moved = (signature.peer + there.index(new) - here.index(old)) % len(here)
    return signature if moved == signature.peer else msgspec.structs.replace(signature, peer=moved)
