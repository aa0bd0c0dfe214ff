"""Which collectives of ranks that run meet, as they become known: the n-th call of each member on a communicator.

`presim.engine.matching` decides the same from whole traces. Here a communicator is known by its members and by the name
that its ranks have for it; ranks that do not run are taken to be there, whoever stands for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from presim.engine import loop
from presim.engine.live import LiveEngine
from presim.engine.ops import RankOps
from presim.trace.schema import Group
from presim.trace.signatures import Collective, Signature

_PAIRS = ("send", "recv", "send_recv")


class _Channel(NamedTuple):
    """A sequence of rendezvous between the same ranks."""

    identity: Hashable
    members: int  # that run


class Meetings:
    """The rendezvous of all ranks that run."""

    def __init__(self, engine: LiveEngine, ranks: Collection[int]) -> None:
        self._engine = engine
        self._ranks = set(ranks)
        self._calls: Counter[tuple[int, _Channel]] = Counter()
        self._numbers: dict[tuple[_Channel, int], int] = {}

    def of(self, rank: int, ops: RankOps, names: Sequence[str]) -> NDArray[np.int64]:
        """By op, the rendezvous it belongs to; -1: nobody else is there. ``names``: the ranks' own of each group."""
        match = np.full(len(ops.code), -1, np.int64)
        if len(self._ranks) < 2:
            return match
        signatures, groups = ops.trace.signatures, ops.trace.manifest.groups
        of_entry = ops.trace.columns["signature"][ops.entries]
        for op in np.flatnonzero(ops.code == loop.MEET).tolist():
            channel = self._channel(rank, signatures[int(of_entry[op])], groups, names)
            if channel is not None:
                match[op] = self._number(rank, channel)
        return match

    def _number(self, rank: int, channel: _Channel) -> int:
        call = self._calls[rank, channel]
        self._calls[rank, channel] += 1
        if (channel, call) not in self._numbers:
            self._numbers[channel, call] = self._engine.meeting(channel.members)
        return self._numbers[channel, call]

    def _channel(
        self, rank: int, signature: Signature, groups: Sequence[Group], names: Sequence[str]
    ) -> _Channel | None:
        if not isinstance(signature, Collective) or not 0 <= signature.group < len(groups):
            return None
        ranks = groups[signature.group].ranks
        communicator = (ranks, names[signature.group])
        if signature.kind not in _PAIRS:
            members = len(self._ranks.intersection(ranks))
            return _Channel(communicator, members) if members > 1 else None
        if not 0 <= signature.peer < len(ranks):
            return None
        peer = ranks[signature.peer]
        if peer == rank or peer not in self._ranks:
            return None
        if signature.kind == "send_recv":
            return _Channel((communicator, "both", min(rank, peer), max(rank, peer)), 2)
        ends = (rank, peer) if signature.kind == "send" else (peer, rank)
        return _Channel((communicator, "from", *ends), 2)
