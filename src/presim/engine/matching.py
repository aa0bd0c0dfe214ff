"""Which collectives of different ranks are one and the same: the rendezvous of the simulation.

NCCL matches by order: the n-th call on a communicator meets the n-th call of every other member. Sends and receives
match by order between their two ranks. A communicator is identified by its members and, where several have the same
members, by its name if the ranks agree on those names, else by the order in which the ranks made them. (Names come
first because communicators are made when they are first used, and pipeline stages use them in orders of their own.)

Ranks that are not simulated are taken to be at every rendezvous exactly when the simulated members are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.engine.hang import HangError, describe
from presim.trace.schema import Group, Kind, Trace
from presim.trace.signatures import Collective, Signature

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Matching:
    """The rendezvous of several traces."""

    match: list[Ints]  # by trace: match of each entry, -1 where no other simulated rank takes part
    needed: Ints  # by match: entries that meet


@dataclasses.dataclass(frozen=True)
class _Channel:
    """A sequence of rendezvous between the same ranks: a communicator, or one direction of a pair in it."""

    identity: Hashable
    members: int  # simulated ones


def match_collectives(traces: Sequence[Trace]) -> Matching:
    """Number every rendezvous; ranks that meet for different operations are a `HangError`."""
    simulated = {trace.manifest.rank for trace in traces}
    channels: dict[_Channel, int] = {}
    keys: list[Ints] = []
    named = _named(traces)
    for trace in traces:
        communicators = _communicators(trace.manifest.groups, named)
        table = [_channel_id(signature, trace, communicators, simulated, channels) for signature in trace.signatures]
        channel = np.array([*table, -1], np.int64)[trace.columns["signature"].astype(np.int64)]
        channel[trace.columns["kind"] != Kind.COLLECTIVE] = -1
        keys.append(np.where(channel >= 0, channel << 32 | _occurrence(channel), -1))
    unique, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    numbers = np.asarray(inverse, np.int64).reshape(-1) - int(len(unique) > 0 and unique[0] == -1)
    match = np.split(numbers, np.cumsum([len(trace) for trace in traces])[:-1])
    members = np.array([channel.members for channel in channels], np.int64)
    result = Matching(match, members[unique[unique >= 0] >> 32])
    _compare(traces, result)
    return result


def _named(traces: Sequence[Trace]) -> set[tuple[int, ...]]:
    """Members whose communicators have names that differ on each rank and agree between the ranks."""
    names: dict[tuple[int, ...], list[list[str]]] = {}
    for trace in traces:
        here: dict[tuple[int, ...], list[str]] = {}
        for group in trace.manifest.groups:
            here.setdefault(group.ranks, []).append(group.name)
        for ranks, found in here.items():
            names.setdefault(ranks, []).append(found)
    return {
        ranks
        for ranks, found in names.items()
        if all(len(set(each)) == len(each) for each in found)
        and len({name for each in found for name in each}) == max(map(len, found))
    }


def _communicators(groups: Sequence[Group], named: set[tuple[int, ...]]) -> list[Hashable]:
    """What each group of a rank is known by among all ranks."""
    return [
        (group.ranks, group.name if group.ranks in named else _ordinal(groups, index))
        for index, group in enumerate(groups)
    ]


def _channel_id(
    signature: Signature,
    trace: Trace,
    communicators: Sequence[Hashable],
    simulated: set[int],
    channels: dict[_Channel, int],
) -> int:
    channel = _channel(signature, trace, communicators, simulated) if isinstance(signature, Collective) else None
    return -1 if channel is None else channels.setdefault(channel, len(channels))


def _channel(
    signature: Collective, trace: Trace, communicators: Sequence[Hashable], simulated: set[int]
) -> _Channel | None:
    groups = trace.manifest.groups
    if not 0 <= signature.group < len(groups) or not groups[signature.group].ranks:
        return None
    ranks = groups[signature.group].ranks
    communicator = communicators[signature.group]
    if signature.kind not in ("send", "recv", "send_recv"):
        members = len(simulated.intersection(ranks))
        return _Channel(communicator, members) if members > 1 else None
    if not 0 <= signature.peer < len(ranks):
        return None
    here, there = trace.manifest.rank, ranks[signature.peer]
    if here == there or there not in simulated:
        return None
    if signature.kind == "send_recv":
        return _Channel((communicator, "both", min(here, there), max(here, there)), 2)
    pair = (here, there) if signature.kind == "send" else (there, here)
    return _Channel((communicator, "from", *pair), 2)


def _ordinal(groups: Sequence[Group], index: int) -> int:
    return sum(group.ranks == groups[index].ranks for group in groups[:index])


def _occurrence(values: Ints) -> Ints:
    """For each entry how many earlier ones have the same value."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(values) else np.zeros(0, bool)
    starts = np.flatnonzero(is_first)
    result = np.empty(len(values), np.int64)
    result[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    return result


def _compare(traces: Sequence[Trace], matching: Matching) -> None:
    """All members of a rendezvous must be there for the same operation."""
    contents: dict[Hashable, int] = {}
    lowest = np.full(len(matching.needed), np.iinfo(np.int64).max)
    highest = np.full(len(matching.needed), -1, np.int64)
    for trace, match in zip(traces, matching.match, strict=True):
        entries = np.flatnonzero(match >= 0)
        table = [contents.setdefault(_content(signature), len(contents)) for signature in trace.signatures]
        content = np.array([*table, -1], np.int64)[trace.columns["signature"][entries].astype(np.int64)]
        np.minimum.at(lowest, match[entries], content)
        np.maximum.at(highest, match[entries], content)
    wrong = np.flatnonzero(lowest < highest)
    if len(wrong):
        first = {  # the earliest disagreement by entry, which is the cause of the others
            number: min(int(np.argmax(match == number)) for match in matching.match if np.any(match == number))
            for number in wrong[:1000].tolist()
        }
        number = min(first, key=lambda key: (first[key], key))
        found = [
            describe(trace, int(np.argmax(match == number)))
            for trace, match in zip(traces, matching.match, strict=True)
            if np.any(match == number)
        ]
        raise HangError(f"ranks meet for different operations: {'; '.join(found)}")


def _content(signature: Signature) -> Hashable:
    """What members of a rendezvous must agree on."""
    if not isinstance(signature, Collective):
        return None
    if signature.kind in ("send", "recv"):
        return "send and recv"  # a receive may be posted for more than is sent
    same_size = signature.kind in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
    return (signature.kind, signature.bytes if same_size else 0)
