"""The ranks that run, and the values that the store returns in place of absent ranks.

A store's key does not say which rank sets it. Where that matters, ranks add it: groups wrap their store in a prefix
that lists the members that run (`group_prefix`), and a key for other ranks contains the sender's rank (`posted_key`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence

UNIQUE_ID_BYTES = 128
_COMMUNICATOR = re.compile(r"(?:^|/)(\d+)(?::\d+)*$")  # of PyTorch's NCCL groups; set by the lowest group rank in it
_GROUP = re.compile(r"presim-members=([\d:;]*)/")
_POSTED = re.compile(r"presim-from=(\d+)/")
_BARRIER = "store_based_barrier_key"  # PyTorch's, after creating a group: absent ranks never increment its counter


def group_prefix(members: Sequence[int], present: Iterable[int]) -> str:
    """Store prefix for a group with these global ranks: the members that run, as ``group rank:global rank;…``."""
    running = set(present)
    pairs = (f"{group_rank}:{rank}" for group_rank, rank in enumerate(members) if rank in running)
    return f"presim-members={';'.join(pairs)}"


def posted_key(rank: int, key: str) -> str:
    """The key under which a rank posts its own value."""
    return f"presim-from={rank}/{key}"


def absent_rank_value(key: str) -> bytes:
    """The assumed value of an absent rank's key: the same bytes for the same key in every run."""
    if _COMMUNICATOR.search(key):
        return hashlib.sha512(key.encode()).digest() * (UNIQUE_ID_BYTES // 64)
    return b"1"


class PresentRanks:
    """The ranks that run together and have not ended.

    ``is_idle``: whether all of their processes are idle, so that a missing key will not be set.
    """

    def __init__(self, ranks: Iterable[int], is_idle: Callable[[], bool] = lambda: False) -> None:
        self.running = set(ranks)
        self.is_idle = is_idle

    def rank_ended(self, rank: int) -> None:
        """A rank's process has ended."""
        self.running.discard(rank)

    def answer(self, key: str) -> bytes | None:
        """The value for a missing key that a rank waits for; None if a running rank may still set it."""
        if posted := _POSTED.search(key):
            return None if int(posted.group(1)) in self.running else b""
        if _BARRIER in key or len(self.running) < 2:
            return absent_rank_value(key)
        if communicator := _COMMUNICATOR.search(key):
            setter = _setter(key, int(communicator.group(1)))
            return None if setter in self.running else absent_rank_value(key)
        return absent_rank_value(key) if self.is_idle() else None


def _setter(key: str, position: int) -> int | None:
    """Global rank of the member that sets a communicator's key: the first, or the lower of a pair."""
    groups = _GROUP.findall(key)
    if not groups:
        return None
    is_pair = re.search(r"\d+:\d+$", key) is not None
    members = dict(part.split(":") for part in groups[-1].split(";") if part)
    global_rank = members.get(str(position if is_pair else 0))
    return None if global_rank is None else int(global_rank)
