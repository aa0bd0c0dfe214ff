"""Error messages for deadlocks: which call each rank waits in."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from presim.errors import HangError
from presim.trace.schema import Group, Kind, Phase, Trace
from presim.trace.signatures import Collective, family

_MAX_ENTRIES = 6  # entries in a message
_MAX_RANKS = 8


def describe(trace: Trace, entry: int) -> str:
    """One entry with its rank and place in the script."""
    columns = trace.columns
    call_site = f"rank {trace.manifest.rank}, entry {entry}{_location(trace, entry)}"
    kind = Kind(int(columns["kind"][entry]))
    index = int(columns["signature"][entry])
    if index < 0:
        return f"{call_site}: {kind.name.lower()}"
    signature = trace.signatures[index]
    if not isinstance(signature, Collective):
        return f"{call_site}: {family(signature)}"
    return f"{call_site}: {_call(trace, signature)}"


def describe_call(trace: Trace, entry: int) -> str:
    """A collective with its rank, without its number in the trace."""
    signature = trace.signatures[int(trace.columns["signature"][entry])]
    assert isinstance(signature, Collective), "test_meetings: only collectives meet"
    return f"rank {trace.manifest.rank}{_location(trace, entry)}: {_call(trace, signature)}"


def _call(trace: Trace, signature: Collective) -> str:
    peer = f" with its rank {signature.peer}" if signature.peer >= 0 else ""
    dtype = f" ({signature.dtype})" if signature.dtype else ""
    return f"{signature.kind} of {signature.bytes} bytes{dtype} on {_group(trace, signature)}{peer}"


def _location(trace: Trace, entry: int) -> str:
    """Line of the script, module and phase of the step, where known."""
    site, scope, phase = (int(trace.columns[name][entry]) for name in ("site", "scope", "phase"))
    location = f" at {trace.sites[site]}" if site >= 0 else ""
    location += f" in {trace.scopes[scope]}" if scope >= 0 else ""
    return f"{location} ({Phase(phase).name.lower()})" if phase != Phase.OTHER else location


def _group(trace: Trace, signature: Collective) -> str:
    groups = trace.manifest.groups
    if not 0 <= signature.group < len(groups):
        return f"'group {signature.group}'"
    group: Group = groups[signature.group]
    return f"{group.name!r} (ranks {name_ranks(group.ranks)})" if group.ranks else repr(group.name)


def name_ranks(ranks: Sequence[int]) -> str:
    """Ranks as short text: ``0, 4, 8``, ``0 to 1023``, ``0 to 1016 in steps of 8``."""
    if len(ranks) > 2:
        step = ranks[1] - ranks[0]
        if step > 0 and all(after - before == step for before, after in itertools.pairwise(ranks)):
            return f"{ranks[0]} to {ranks[-1]}" + (f" in steps of {step}" if step > 1 else "")
    suffix = ", …" if len(ranks) > _MAX_RANKS else ""
    return ", ".join(str(rank) for rank in ranks[:_MAX_RANKS]) + suffix


def disagreement(met: Sequence[tuple[Trace, int]]) -> HangError:
    """The error for ranks that call different operations in one rendezvous."""
    return HangError(f"ranks call different collectives at the same point of a communicator: {_described(met)}")


def unequal_parts(sender: tuple[Trace, int], sent: int, receiver: tuple[Trace, int], expected: int) -> HangError:
    """The error for an all-to-all in which a sender and a receiver disagree on the size."""
    ranks = sender[0].manifest.rank, receiver[0].manifest.rank
    return HangError(
        f"in an all-to-all, rank {ranks[0]} sends {sent} bytes to rank {ranks[1]}, which expects "
        f"{expected} bytes: {_described((sender, receiver))}"
    )


def hang(stuck: Sequence[tuple[Trace, int]], absent: Sequence[tuple[Trace, int, Trace]] = ()) -> HangError:
    """The error for entries that wait forever.

    Args:
        stuck: trace and entry of each call that never ends.
        absent: the calls that wait for a rank which never makes them, with that rank's trace. All others in
            ``stuck`` wait for these.
    """
    if absent:
        trace, entry, other = absent[0]
        suffix = f" ({len(absent) - 1} more such waits)" if len(absent) > 1 else ""
        absent_rank = f"rank {other.manifest.rank}, which {_last_call_of(trace, entry, other)}"
        return HangError(f"{describe(trace, entry)} waits for {absent_rank}{suffix}")
    return HangError(f"these calls wait for each other in a cycle: {_described(stuck)}")


def _last_call_of(trace: Trace, entry: int, other: Trace) -> str:
    """How far the other rank got on the communicator of the entry."""
    signature = trace.signatures[int(trace.columns["signature"][entry])]
    groups = _same_group(trace, signature, other)
    of_entry = other.columns["signature"]
    calls = [
        other_entry
        for other_entry in _collectives(other)
        if _group_of(other.signatures[int(of_entry[other_entry])]) in groups
    ]
    if not calls:
        return "never calls anything on it"
    times = f"{len(calls)} call{'s' if len(calls) > 1 else ''}"
    return f"makes {times} on it and not this one; its last is {describe(other, calls[-1])}"


def _collectives(trace: Trace) -> list[int]:
    return [index for index, kind in enumerate(trace.columns["kind"].tolist()) if kind == Kind.COLLECTIVE]


def _same_group(trace: Trace, signature: object, other: Trace) -> set[int]:
    """Indices of the other rank's groups that may be the group of a call.

    They have the same ranks. Between several of these, the order of creation decides, then the name.
    """
    index = _group_of(signature)
    groups = trace.manifest.groups
    if not 0 <= index < len(groups) or not groups[index].ranks:
        return set()
    key = groups[index].ranks, groups[index].ordinal
    same_ranks = {number for number, group in enumerate(other.manifest.groups) if (group.ranks, group.ordinal) == key}
    same_name = {number for number in same_ranks if other.manifest.groups[number].name == groups[index].name}
    is_one_of_several = sum((group.ranks, group.ordinal) == key for group in groups) > 1
    return same_name if same_name or is_one_of_several else same_ranks


def _group_of(signature: object) -> int:
    return signature.group if isinstance(signature, Collective) else -1


def _described(entries: Sequence[tuple[Trace, int]]) -> str:
    descriptions = "; ".join(describe(trace, entry) for trace, entry in entries[:_MAX_ENTRIES])
    return descriptions + (f"; and {len(entries) - _MAX_ENTRIES} more" if len(entries) > _MAX_ENTRIES else "")
