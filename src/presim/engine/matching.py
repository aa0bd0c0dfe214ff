"""Matches the collective calls of different ranks that form one rendezvous.

NCCL matches by order: the n-th call on a communicator meets the n-th call of every other member. Sends and receives
match by order between their two ranks. `presim.trace.collate` finds which groups are the same communicator.

Ranks that are neither simulated nor represented are assumed to arrive together with the simulated members. The same
holds for the peer of a send if the sending rank represents it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.engine.all_to_all_check import compare_parts
from presim.engine.hang import disagreement
from presim.trace.collate import Communicators, Place
from presim.trace.representatives import Representatives
from presim.trace.schema import FAILED, Kind, Trace
from presim.trace.signatures import Collective, Signature

Ints = NDArray[np.int64]
_SAME_SIZE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


@dataclasses.dataclass(frozen=True)
class Channel:
    """A sequence of rendezvous between the same ranks: a communicator, or one direction of a pair in it."""

    identity: Hashable
    ranks: tuple[int, ...]  # simulated ranks; all of them take part


@dataclasses.dataclass(frozen=True)
class Matching:
    """The rendezvous of several traces."""

    match: list[Ints]  # by trace: rendezvous of each entry, -1 if no other simulated rank takes part
    needed: Ints  # by match: number of entries that meet
    channel: Ints  # by match: index into `channels`
    channels: tuple[Channel, ...]


def match_collectives(traces: Sequence[Trace], representatives: Representatives | None = None) -> Matching:
    """Number every rendezvous.

    Raises:
        HangError: ranks call different operations, or disagree on the sizes of an all-to-all.
    """
    representatives = representatives or Representatives([trace.manifest.rank for trace in traces])
    communicators = Communicators(traces, representatives)
    channels: dict[Channel, int] = {}
    keys: list[Ints] = []
    for trace in traces:
        places = communicators.places(trace.manifest.rank)
        found = [_channel(signature, places, communicators) for signature in trace.signatures]
        table = [-1 if channel is None else channels.setdefault(channel, len(channels)) for channel in found]
        channel = np.array([*table, -1], np.int64)[trace.columns["signature"].astype(np.int64)]
        channel[trace.columns["kind"] != Kind.COLLECTIVE] = -1
        keys.append(np.where(channel >= 0, channel << 32 | _occurrence(channel), -1))
    all_keys = np.concatenate(keys)
    meets = np.flatnonzero(all_keys >= 0)  # sort only these: they are few of all entries
    unique, inverse = np.unique(all_keys[meets], return_inverse=True)
    numbers = np.full(len(all_keys), -1, np.int64)
    numbers[meets] = inverse.reshape(-1)
    match = np.split(numbers, np.cumsum([len(trace) for trace in traces])[:-1])
    of_match = unique >> 32
    result = Matching(match, _needed(traces, numbers, of_match, channels), of_match, tuple(channels))
    _compare(traces, result)
    compare_parts(traces, match, [_seats(trace, communicators) for trace in traces])
    return result


def _seats(trace: Trace, communicators: Communicators) -> list[int]:
    """By signature: the rank's position in the communicator of an all-to-all; -1 for other signatures."""
    places = communicators.places(trace.manifest.rank)

    def seat(signature: Signature) -> int:
        if not isinstance(signature, Collective) or signature.kind != "all_to_all":
            return -1
        place = places[signature.group] if 0 <= signature.group < len(places) else None
        return -1 if place is None else communicators.own_seat(place)

    return [seat(signature) for signature in trace.signatures]


def _needed(traces: Sequence[Trace], numbers: Ints, of_match: Ints, channels: Iterable[Channel]) -> Ints:
    """Number of entries per rendezvous: one per member, or only those that were reached if a rank failed."""
    if any(trace.manifest.exit in FAILED for trace in traces):
        return np.bincount(numbers[numbers >= 0], minlength=len(of_match)).astype(np.int64)
    members = np.array([len(channel.ranks) for channel in channels], np.int64)
    return members[of_match]


def _channel(signature: Signature, places: Sequence[Place | None], communicators: Communicators) -> Channel | None:
    if not isinstance(signature, Collective) or not 0 <= signature.group < len(places):
        return None
    place = places[signature.group]
    if place is None:
        return None
    if signature.kind not in ("send", "recv", "send_recv"):
        ranks = communicators.members(place.communicator)
        return Channel(place.communicator, ranks) if len(ranks) > 1 else None
    if not 0 <= signature.peer < len(place.ranks):
        return None
    here, there = communicators.own_seat(place), communicators.seat(place, signature.peer)
    if there is None or here == there:
        return None
    if signature.kind == "send_recv":
        ends = ("both", min(here, there), max(here, there))
    else:
        ends = ("from", *((here, there) if signature.kind == "send" else (there, here)))
    return Channel((place.communicator, *ends), communicators.seated(place.communicator, here, there))


def _occurrence(values: Ints) -> Ints:
    """For each element, the number of earlier elements with the same value."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(values) else np.zeros(0, bool)
    starts = np.flatnonzero(is_first)
    result = np.empty(len(values), np.int64)
    result[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    return result


def _compare(traces: Sequence[Trace], matching: Matching) -> None:
    """Raise a `HangError` if members of a rendezvous call different operations."""
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
        number = _earliest(wrong, matching)
        raise disagreement(
            [
                (trace, int(np.argmax(match == number)))
                for trace, match in zip(traces, matching.match, strict=True)
                if np.any(match == number)
            ]
        )


def _earliest(wrong: Ints, matching: Matching) -> int:
    """The disagreement that any rank reaches first. It causes the others."""
    first = np.full(len(matching.needed), np.iinfo(np.int64).max)
    for match in matching.match:
        entries = np.flatnonzero(match >= 0)
        np.minimum.at(first, match[entries], entries)
    return int(wrong[np.argmin(first[wrong])])


def _content(signature: Signature) -> Hashable:
    """The properties of a call that all members of a rendezvous must agree on."""
    if not isinstance(signature, Collective):
        return None
    if signature.kind in ("send", "recv"):
        return "send and recv"  # a receive may be larger than its send
    return (
        signature.kind,
        signature.bytes if signature.kind in _SAME_SIZE else 0,
        signature.dtype if signature.kind in _SAME_SIZE else "",
        signature.peer if signature.kind in _ROOTED else -1,
    )
