"""Splits a rank that represents others when some of them become slower.

A captured rank that stands for others becomes several simulated ranks, one for each way in which the ranks it stands
for now differ. Each is the same trace with the process groups of its own place in the grid of ranks.
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
    """The traces with those of ranks that now differ, and who stands for whom.

    Args:
        traces: of the captured ranks.
        stands_for: captured rank -> the others that did as it does.
        kinds: rank -> in what way it differs from now on; a rank that is not named is as it was.

    Raises:
        InputError: the trace of a rank to be split names groups that form no grid, or parts of other ranks.
    """
    found: list[Trace] = []
    speak: dict[int, list[int]] = {}
    for trace in traces:
        rank = trace.manifest.rank
        parts: dict[Hashable, list[int]] = {kinds.get(rank): [rank]}
        for other in stands_for.get(rank, ()):
            parts.setdefault(kinds.get(other), []).append(other)
        for members in parts.values():
            voice = rank if rank in members else min(members)
            found.append(trace if voice == rank else as_rank(trace, voice))
            if others := [other for other in members if other != voice]:
                speak[voice] = others
    return sorted(found, key=lambda trace: trace.manifest.rank), speak


def as_rank(trace: Trace, rank: int) -> Trace:
    """The trace of another rank that does the same: its groups are those of its own place.

    Raises:
        InputError: see `split`.
    """
    manifest = trace.manifest
    groups = tuple(_moved(group, manifest.rank, rank) for group in manifest.groups)
    signatures = tuple(_seen_from(one, manifest.groups, groups, manifest.rank, rank) for one in trace.signatures)
    return dataclasses.replace(
        trace, manifest=msgspec.structs.replace(manifest, rank=rank, groups=groups), signatures=signatures
    )


def _moved(group: Group, old: int, new: int) -> Group:
    """The group of the same kind that the new rank is in."""
    if old not in group.ranks or new in group.ranks:
        return group
    axes = axes_of(group.ranks)
    if axes is None:
        raise InputError(
            f"rank {new} cannot be simulated apart from rank {old}: the group {group.name!r} of {group.size} ranks "
            f"forms no grid; capture rank {new} as well (--ranks {old},{new})"
        )
    ordered = members_of(origin_of(new, axes), axes)
    by_rank = sorted(group.ranks)
    return Group(group.name, tuple(ordered[by_rank.index(member)] for member in group.ranks), group.size)


def _seen_from(signature: Signature, before: Sequence[Group], after: Sequence[Group], old: int, new: int) -> Signature:
    """Messages go to the same distance; parts of an uneven exchange are a rank's own."""
    if not isinstance(signature, Collective) or not 0 <= signature.group < len(before):
        return signature
    if signature.splits is not None:
        raise InputError(
            f"rank {new} cannot be simulated apart from rank {old}, whose {signature.kind} has parts of its own; "
            f"capture rank {new} as well (--ranks {old},{new})"
        )
    here, there = before[signature.group].ranks, after[signature.group].ranks
    if signature.kind not in MESSAGES or old not in here or new not in there or signature.peer < 0:
        return signature
    moved = (signature.peer + there.index(new) - here.index(old)) % len(here)
    return signature if moved == signature.peer else msgspec.structs.replace(signature, peer=moved)
