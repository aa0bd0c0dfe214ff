"""Checks that the ranks of an all-to-all agree on message sizes.

Only captured ranks are compared. A rank that is represented by another has no sizes of its own.
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
    """Raise a `HangError` for the first pair of ranks whose sizes differ.

    Args:
        traces: traces of the captured ranks.
        match: by trace, the rendezvous of each entry; -1 if no other simulated rank takes part.
        seats: by trace and signature, the rank's position in its all-to-all communicator, or -1.
    """
    exchanges = [
        _Exchanges(trace, numbers, places) for trace, numbers, places in zip(traces, match, seats, strict=True)
    ]
    for first, second in itertools.combinations([exchange for exchange in exchanges if len(exchange.match)], 2):
        _, in_first, in_second = np.intersect1d(first.match, second.match, assume_unique=True, return_indices=True)
        pairs = first.signature[in_first].astype(np.int64) << 32 | second.signature[in_second]
        for pair_position in np.sort(np.unique(pairs, return_index=True)[1]).tolist():
            calls = first.call_at(in_first[pair_position]), second.call_at(in_second[pair_position])
            _compare(*calls)
            _compare(*reversed(calls))


class _Call(NamedTuple):
    """One rank's call of an all-to-all."""

    trace: Trace
    entry: int
    seat: int

    @property
    def signature(self) -> Collective:
        signature = self.trace.signatures[int(self.trace.columns["signature"][self.entry])]
        assert isinstance(signature, Collective), "test_parts: only all-to-alls have a seat"
        return signature


class _Exchanges:
    """The all-to-alls of a trace that meet calls of other simulated ranks."""

    def __init__(self, trace: Trace, match: Ints, seats: Sequence[int]) -> None:
        signature = trace.columns["signature"].astype(np.int64)
        is_exchange = np.array([*(seat >= 0 for seat in seats), False])[signature] & (match >= 0)
        self.trace = trace
        self.seats = seats
        self.entry = np.flatnonzero(is_exchange)
        self.match = match[self.entry]
        self.signature = signature[self.entry]

    def call_at(self, position: int) -> _Call:
        return _Call(self.trace, int(self.entry[position]), self.seats[int(self.signature[position])])


def _compare(sender: _Call, receiver: _Call) -> None:
    if sender.seat == receiver.seat:
        return  # one rank represents the other
    sent, expected = _part(sender, "sent", receiver.seat), _part(receiver, "received", sender.seat)
    if sent != expected and sent is not None and expected is not None:
        raise unequal_parts((sender.trace, sender.entry), sent, (receiver.trace, receiver.entry), expected)


def _part(end: _Call, way: str, seat: int) -> int | None:
    """Bytes that a rank sends to or receives from the rank at ``seat``; None if unknown."""
    signature = end.signature
    if signature.splits is not None:
        parts: tuple[int, ...] = getattr(signature.splits, way)
        return parts[seat] if seat < len(parts) else None
    size = end.trace.manifest.groups[signature.group].size
    return signature.bytes // size if size else None
