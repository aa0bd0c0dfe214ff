"""Numbers the rendezvous of several ranks: collective calls of different ranks that match.

NCCL matches by order: the n-th call on a communicator meets the n-th call of every other member. Sends and receives
match by order between their two ranks. `presim.trace.collate` finds which groups are the same communicator.

Ranks that are neither captured nor represented are assumed to arrive together with the captured members. The same
holds for the peer of a send if the sending rank represents it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.trace.collate import Communicators, Membership
from presim.trace.representatives import Representatives
from presim.trace.schema import Kind, Trace
from presim.trace.signatures import Collective, Signature

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Channel:
    """A sequence of rendezvous between the same ranks: a communicator, or one direction of a pair in it."""

    identity: Hashable
    ranks: tuple[int, ...]  # captured ranks; all of them take part


@dataclasses.dataclass(frozen=True)
class Rendezvous:
    """The rendezvous of several traces."""

    match: list[Ints]  # by trace: rendezvous of each entry, -1 if no other captured rank takes part
    channel: Ints  # by rendezvous: index into `channels`
    channels: tuple[Channel, ...]
    communicators: Communicators

    @property
    def members(self) -> Ints:
        """By rendezvous: the number of ranks that take part."""
        counts = np.array([len(channel.ranks) for channel in self.channels], np.int64)
        return counts[self.channel]


def number_rendezvous(traces: Sequence[Trace], representatives: Representatives | None = None) -> Rendezvous:
    """Number every rendezvous; ``representatives``: which ranks represent others, by default none."""
    representatives = representatives or Representatives([trace.manifest.rank for trace in traces])
    communicators = Communicators(traces, representatives)
    channels: dict[Channel, int] = {}
    keys: list[Ints] = []
    for trace in traces:
        memberships = communicators.memberships(trace.manifest.rank)
        by_signature = [_channel(signature, memberships, communicators) for signature in trace.signatures]
        table = [-1 if channel is None else channels.setdefault(channel, len(channels)) for channel in by_signature]
        channel = np.array([*table, -1], np.int64)[trace.columns["signature"].astype(np.int64)]
        channel[trace.columns["kind"] != Kind.COLLECTIVE] = -1
        keys.append(np.where(channel >= 0, channel << 32 | _occurrence(channel), -1))
    all_keys = np.concatenate(keys)
    meets = np.flatnonzero(all_keys >= 0)  # sort only these: they are few of all entries
    unique, inverse = np.unique(all_keys[meets], return_inverse=True)
    numbers = np.full(len(all_keys), -1, np.int64)
    numbers[meets] = inverse.reshape(-1)
    match = np.split(numbers, np.cumsum([len(trace) for trace in traces])[:-1])
    return Rendezvous(match, unique >> 32, tuple(channels), communicators)


def _channel(
    signature: Signature, memberships: Sequence[Membership | None], communicators: Communicators
) -> Channel | None:
    if not isinstance(signature, Collective) or not 0 <= signature.group < len(memberships):
        return None
    membership = memberships[signature.group]
    if membership is None:
        return None
    if signature.kind not in ("send", "recv", "send_recv"):
        ranks = communicators.members(membership.communicator)
        return Channel(membership.communicator, ranks) if len(ranks) > 1 else None
    if not 0 <= signature.peer < len(membership.ranks):
        return None
    own_seat, peer_seat = communicators.own_seat(membership), communicators.seat(membership, signature.peer)
    if peer_seat is None or own_seat == peer_seat:
        return None
    if signature.kind == "send_recv":
        direction = ("both", min(own_seat, peer_seat), max(own_seat, peer_seat))
    else:
        direction = ("from", *((own_seat, peer_seat) if signature.kind == "send" else (peer_seat, own_seat)))
    return Channel(
        (membership.communicator, *direction), communicators.seated(membership.communicator, own_seat, peer_seat)
    )


def _occurrence(values: Ints) -> Ints:
    """For each element, the number of earlier elements with the same value."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(values) else np.zeros(0, bool)
    starts = np.flatnonzero(is_first)
    result = np.empty(len(values), np.int64)
    result[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    return result
