"""Matches the collective calls of different ranks that form one rendezvous, and checks that their calls agree."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.engine.all_to_all_check import compare_parts
from presim.engine.hang import disagreement
from presim.trace.collate import Communicators
from presim.trace.rendezvous import Channel, Rendezvous, number_rendezvous
from presim.trace.representatives import Representatives
from presim.trace.schema import FAILED, Trace
from presim.trace.signatures import Collective, Signature

Ints = NDArray[np.int64]
_SAME_SIZE = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


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
    rendezvous = number_rendezvous(traces, representatives)
    result = Matching(rendezvous.match, _needed(traces, rendezvous), rendezvous.channel, rendezvous.channels)
    _compare(traces, result)
    compare_parts(traces, result.match, [_seats(trace, rendezvous.communicators) for trace in traces])
    return result


def _seats(trace: Trace, communicators: Communicators) -> list[int]:
    """By signature: the rank's position in the communicator of an all-to-all; -1 for other signatures."""
    memberships = communicators.memberships(trace.manifest.rank)

    def seat(signature: Signature) -> int:
        if not isinstance(signature, Collective) or signature.kind != "all_to_all":
            return -1
        membership = memberships[signature.group] if 0 <= signature.group < len(memberships) else None
        return -1 if membership is None else communicators.own_seat(membership)

    return [seat(signature) for signature in trace.signatures]


def _needed(traces: Sequence[Trace], rendezvous: Rendezvous) -> Ints:
    """Number of entries per rendezvous: one per member, or only those that were reached if a rank failed."""
    if any(trace.manifest.exit in FAILED for trace in traces):
        numbers = np.concatenate(rendezvous.match)
        return np.bincount(numbers[numbers >= 0], minlength=len(rendezvous.channel)).astype(np.int64)
    return rendezvous.members


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
