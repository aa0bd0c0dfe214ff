"""Matches collectives of running ranks: the n-th call of each member on a communicator.

`presim.engine.matching` does the same for whole traces. Here a communicator is identified by the representatives of its
members, position by position, and by its name on the calling rank. Ranks that represent each other's peers may have
communicators of different names: then the n-th of one is matched with the n-th of the other. A rank without a
representative is assumed to join every rendezvous.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from presim.engine import loop
from presim.engine.hang import describe_call
from presim.engine.live import LiveEngine
from presim.engine.ops import RankOps
from presim.trace.representatives import Representatives
from presim.trace.schema import Group, Trace
from presim.trace.signatures import Collective, Signature

_PAIRS = ("send", "recv", "send_recv")


@dataclasses.dataclass(eq=False)
class _Communicator:
    """One communicator of running ranks, which may have different names for it."""

    ranks: tuple[int, ...]  # as its first caller has them
    name: str
    representatives: tuple[int, ...]  # by position: the rank that represents it; negative: none
    callers: set[int] = dataclasses.field(default_factory=set)

    @property
    def members(self) -> int:
        return len({rank for rank in self.representatives if rank >= 0})

    def matches(self, rank: int, ranks: tuple[int, ...], name: str) -> bool:
        """Whether a rank's communicator with these members and this name is this one."""
        return self.name == name if self.ranks == ranks else rank not in self.callers


class _Channel(NamedTuple):
    """A sequence of rendezvous between the same ranks."""

    identity: Hashable
    members: int  # running ones


@dataclasses.dataclass
class _Open:
    """A rendezvous that some members have not joined yet."""

    number: int
    missing: int
    trace: Trace  # the piece with the first call
    entry: int


class CollectiveMatcher:
    """The rendezvous of all ranks that run."""

    def __init__(self, engine: LiveEngine, representatives: Representatives) -> None:
        self._engine = engine
        self._representatives = representatives
        self._communicators: dict[tuple[int, ...], list[_Communicator]] = {}  # by representatives
        self._named: dict[tuple[int, tuple[int, ...], str], _Communicator] = {}  # by rank, its members, its name
        self._calls: Counter[tuple[int, _Channel]] = Counter()
        self._incomplete: dict[tuple[_Channel, int], _Open] = {}

    def describe_incomplete(self) -> list[str]:
        """A description of the first call of each incomplete rendezvous, in order of arrival."""
        return [describe_call(rendezvous.trace, rendezvous.entry) for rendezvous in self._incomplete.values()]

    def match_ops(self, rank: int, ops: RankOps, names: Sequence[str]) -> NDArray[np.int64]:
        """The rendezvous of each op; -1: it has no other member. ``names``: the rank's own name of each group."""
        match = np.full(len(ops.code), -1, np.int64)
        if len(self._representatives.captured) < 2:
            return match
        signatures, groups = ops.trace.signatures, ops.trace.manifest.groups
        of_entry = ops.trace.columns["signature"][ops.entries]
        for op in np.flatnonzero(ops.code == loop.MEET).tolist():
            channel = self._channel(rank, signatures[int(of_entry[op])], groups, names)
            if channel is not None:
                match[op] = self._number(rank, channel, ops.trace, int(ops.entries[op]))
        return match

    def _number(self, rank: int, channel: _Channel, trace: Trace, entry: int) -> int:
        call = self._calls[rank, channel]
        self._calls[rank, channel] += 1
        key = channel, call
        if key not in self._incomplete:
            self._incomplete[key] = _Open(self._engine.add_rendezvous(channel.members), channel.members, trace, entry)
        meeting = self._incomplete[key]
        meeting.missing -= 1
        if not meeting.missing:
            del self._incomplete[key]
        return meeting.number

    def _channel(
        self, rank: int, signature: Signature, groups: Sequence[Group], names: Sequence[str]
    ) -> _Channel | None:
        if not isinstance(signature, Collective) or not 0 <= signature.group < len(groups):
            return None
        communicator = self._communicator(rank, groups[signature.group].ranks, names[signature.group])
        if signature.kind not in _PAIRS:
            return _Channel(communicator, communicator.members) if communicator.members > 1 else None
        if not 0 <= signature.peer < len(communicator.representatives):
            return None
        peer = communicator.representatives[signature.peer]
        if peer < 0 or peer == rank:
            return None
        if signature.kind == "send_recv":
            return _Channel((communicator, "both", min(rank, peer), max(rank, peer)), 2)
        sender_and_receiver = (rank, peer) if signature.kind == "send" else (peer, rank)
        return _Channel((communicator, "from", *sender_and_receiver), 2)

    def _communicator(self, rank: int, ranks: tuple[int, ...], name: str) -> _Communicator:
        key = (rank, ranks, name)
        if key not in self._named:
            representatives = tuple(self._representatives.of(ranks).tolist())
            alike = self._communicators.setdefault(representatives, [])
            communicator = next((candidate for candidate in alike if candidate.matches(rank, ranks, name)), None)
            if communicator is None:
                communicator = _Communicator(ranks, name, representatives)
                alike.append(communicator)
            communicator.callers.add(rank)
            self._named[key] = communicator
        return self._named[key]
