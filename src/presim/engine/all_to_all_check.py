"""Checks that ranks in an all-to-all agree on sizes: what one sends is what the other receives.

Only ranks that were captured themselves are compared: what a rank receives from one that another stands for is that
one's to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from presim.engine.hang import unequal_parts
from presim.trace.schema import Trace
from presim.trace.signatures import Collective

Ints = NDArray[np.int64]


def compare_parts(traces: Sequence[Trace], match: Sequence[Ints], seats: Sequence[Sequence[int]]) -> None:
    """Raise the first disagreement as a `HangError`.

    Args:
        traces: of the captured ranks.
        match: by trace, rendezvous of each entry; -1: nobody else takes part.
        seats: by trace and signature, the rank's place in the communicator of an all-to-all; -1: it is none.
    """
    exchanges = [
        _Exchanges(trace, numbers, places) for trace, numbers, places in zip(traces, match, seats, strict=True)
    ]
    for one, other in itertools.combinations([each for each in exchanges if len(each.match)], 2):
        _, mine, theirs = np.intersect1d(one.match, other.match, assume_unique=True, return_indices=True)
        pairs = one.signature[mine].astype(np.int64) << 32 | other.signature[theirs]
        for at in np.sort(np.unique(pairs, return_index=True)[1]).tolist():
            ends = one.at(mine[at]), other.at(theirs[at])
            _compare(*ends)
            _compare(*reversed(ends))


class _End(NamedTuple):
    """One rank's part in an exchange."""

    trace: Trace
    entry: int
    seat: int

    @property
    def signature(self) -> Collective:
        signature = self.trace.signatures[int(self.trace.columns["signature"][self.entry])]
        assert isinstance(signature, Collective), "test_parts: only all-to-alls have a seat"
        return signature


class _Exchanges:
    """The all-to-alls of a trace in which others take part."""

    def __init__(self, trace: Trace, match: Ints, seats: Sequence[int]) -> None:
        signature = trace.columns["signature"].astype(np.int64)
        is_exchange = np.array([*(seat >= 0 for seat in seats), False])[signature] & (match >= 0)
        self.trace = trace
        self.seats = seats
        self.entry = np.flatnonzero(is_exchange)
        self.match = match[self.entry]
        self.signature = signature[self.entry]

    def at(self, position: int) -> _End:
        return _End(self.trace, int(self.entry[position]), self.seats[int(self.signature[position])])


def _compare(sender: _End, receiver: _End) -> None:
    if sender.seat == receiver.seat:
        return  # one sits for the other
    sent, expected = _part(sender, "sent", receiver.seat), _part(receiver, "received", sender.seat)
    if sent != expected and sent is not None and expected is not None:
        raise unequal_parts((sender.trace, sender.entry), sent, (receiver.trace, receiver.entry), expected)


def _part(end: _End, way: str, seat: int) -> int | None:
    """What a rank sends to or receives from a seat, bytes; None: not known."""
    signature = end.signature
    if signature.splits is not None:
        parts: tuple[int, ...] = getattr(signature.splits, way)
        return parts[seat] if seat < len(parts) else None
    size = end.trace.manifest.groups[signature.group].size
    return signature.bytes // size if size else None
