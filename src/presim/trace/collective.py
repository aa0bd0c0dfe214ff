"""The signature of communication: one call of one rank, and how an uneven or routed exchange is dealt out."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from presim.system.files.field_bounds import Integer, Ratio, Size

COLLECTIVE_KINDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "send",
    "recv",
    "send_recv",
    "gather",
    "scatter",
    "barrier",
)

MESSAGES = ("send", "recv", "send_recv")  # between two ranks of a group


class Splits(msgspec.Struct, frozen=True):
    """The parts of an uneven all-to-all: bytes by rank of the group."""

    own: Size  # the rank whose parts these are
    sent: tuple[Size, ...]
    received: tuple[Size, ...]

    @property
    def leaving(self) -> int:
        """Bytes sent to other ranks."""
        return sum(self.sent) - self.sent[self.own]

    @property
    def arriving(self) -> int:
        """Bytes received from other ranks."""
        return sum(self.received) - self.received[self.own]


class Routed(msgspec.Struct, frozen=True):
    """A library's token exchange with experts: a dispatch, or the combine that returns results.

    Each token is sent once to every host with a chosen expert, and there once to every such rank. Low-latency kernels
    send it to every chosen expert.
    """

    library: str  # deepep, deepep-low-latency, their first release (deepep-2025-02), deepep-v2, hybridep
    tokens: Size  # of one rank
    token_bytes: Size
    chosen: Size  # experts of each token
    experts: Size  # of all ranks together
    sms: Size  # SMs that the exchange occupies
    spread: tuple[Ratio, ...] = ()  # to how many places a token goes, of 1, 2, 4, ... ranks each; empty: chosen evenly
    window: Size = 0  # tokens written before the receiver is notified; 0: unknown


class Collective(msgspec.Struct, frozen=True, tag_field="family", tag="collective"):
    """One communication call of one rank.

    ``bytes`` counts as nccl-tests does: the whole gathered result for all_gather, the whole input for
    reduce_scatter, the tensor for all_reduce, broadcast and reduce, what one rank sends for all_to_all,
    send and recv, each token once for dispatch and combine.
    """

    kind: str  # one of COLLECTIVE_KINDS; dispatch or combine where it is `routed`
    bytes: Size
    dtype: str
    group: Integer  # index into the manifest's process groups
    peer: Integer = -1  # root of a rooted collective, or the other side of send/recv, as rank in the group
    fused: Size = 1  # calls coalesced into this launch
    splits: Splits | None = None  # of an all_to_all whose parts differ
    routed: Routed | None = None  # of a dispatch or combine

    flops: ClassVar[int] = 0

    @property
    def even(self) -> Collective:
        """The even all-to-all that moves as much through the busier direction; itself where its parts do not differ."""
        if self.splits is None:
            return self
        ranks = len(self.splits.sent)
        size = -(-max(self.splits.leaving, self.splits.arriving) * ranks // max(ranks - 1, 1))
        return msgspec.structs.replace(self, bytes=size, splits=None)
