"""The ranks that run, and the values that the store answers in place of absent ranks.

A store's key does not tell who would set it. Where that matters the ranks' own side says it: groups of ranks wrap their
store in a prefix that lists the present members (`group_prefix`), and what a rank posts for others carries its number
(`posted_key`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence

UNIQUE_ID_BYTES = 128
_COMMUNICATOR = re.compile(r"(?:^|/)(\d+)(?::\d+)*$")  # of PyTorch's NCCL groups; the lowest group rank in it sets it
_GROUP = re.compile(r"presim-members=([\d:;]*)/")
_POSTED = re.compile(r"presim-from=(\d+)/")
_BARRIER = "store_based_barrier_key"  # PyTorch's, after a group was made: absent ranks never add to its counter


def group_prefix(members: Sequence[int], present: Iterable[int]) -> str:
    """For the store of a group with these global ranks: its present members, as ``group rank:global rank;…``."""
    here = set(present)
    return f"presim-members={';'.join(f'{at}:{rank}' for at, rank in enumerate(members) if rank in here)}"


def posted_key(rank: int, key: str) -> str:
    """The key under which a present rank posts what only it can."""
    return f"presim-from={rank}/{key}"


def absent_rank_value(key: str) -> bytes:
    """What an absent rank is taken to have set: the same bytes for the same key in every run."""
    if _COMMUNICATOR.search(key):
        return hashlib.sha512(key.encode()).digest() * (UNIQUE_ID_BYTES // 64)
    return b"1"


class PresentRanks:
    """The ranks that run together, of whom some may have ended.

    ``is_quiet``: whether none of their processes does anything, so that what is not there will not come.
    """

    def __init__(self, ranks: Iterable[int], is_quiet: Callable[[], bool] = lambda: False) -> None:
        self.running = set(ranks)
        self.is_quiet = is_quiet

    def left(self, rank: int) -> None:
        """A rank's process has ended."""
        self.running.discard(rank)

    def answer(self, key: str) -> bytes | None:
        """For a key that is not there and that somebody waits for; None: a present rank may still set it."""
        if posted := _POSTED.search(key):
            return None if int(posted.group(1)) in self.running else b""
        if _BARRIER in key or len(self.running) < 2:
            return absent_rank_value(key)
        if communicator := _COMMUNICATOR.search(key):
            setter = _setter(key, int(communicator.group(1)))
            return None if setter in self.running else absent_rank_value(key)
        return absent_rank_value(key) if self.is_quiet() else None


def _setter(key: str, position: int) -> int | None:
    """Global rank of the member that sets a communicator's key: the first, or the lower of a pair."""
    groups = _GROUP.findall(key)
    if not groups:
        return None
    is_pair = re.search(r"\d+:\d+$", key) is not None
    members = dict(part.split(":") for part in groups[-1].split(";") if part)
    found = members.get(str(position if is_pair else 0))
    return None if found is None else int(found)
