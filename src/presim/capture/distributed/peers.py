"""Detect the peers that a rank sends to or receives from: such ranks differ and must run together.

Pipelines are recognised by their group names as soon as the groups are created; other peers at their first message.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection
from typing import Any

import torch.distributed as dist

from presim.capture.ranks.rank_grid import MAX_EXCHANGE_GROUP, exchange_peers, is_pipeline


class Peers:
    """Calls ``on_missing``, which does not return, at the first exchange with ranks that do not run."""

    def __init__(self, rank: int, present: Collection[int], on_missing: Callable[[tuple[int, ...]], None]) -> None:
        self.rank = rank
        self.present = set(present)
        self.on_missing = on_missing
        self._known: set[tuple[int, int]] = set()  # (id of a group, peer) pairs checked before

    def install(self) -> None:
        """Install before the script runs."""
        if not dist.is_available():
            return
        self._watch_groups()
        for name in ("send", "recv"):
            self._watch_messages(name)

    def _require(self, ranks: tuple[int, ...]) -> None:
        if self.rank in ranks and not self.present.issuperset(ranks):
            self.on_missing(ranks)

    def _watch_groups(self) -> None:
        module: Any = sys.modules["torch.distributed.distributed_c10d"]
        create = module._new_process_group_helper

        @functools.wraps(create)
        def create_watched(size: int, rank: Any, members: Any, *args: Any, **kwargs: Any) -> Any:
            if members and len(members) <= MAX_EXCHANGE_GROUP and is_pipeline(kwargs.get("group_desc") or ""):
                self._require(tuple(members))
            return create(size, rank, members, *args, **kwargs)

        module._new_process_group_helper = create_watched

    def _watch_messages(self, name: str) -> None:
        call = getattr(dist.ProcessGroup, name)

        @functools.wraps(call)
        def watched(group: Any, tensors: Any, peer: int, *args: Any, **kwargs: Any) -> Any:
            if (id(group), peer) not in self._known:
                self._known.add((id(group), peer))
                members = dist.get_process_group_ranks(group)
                self._require(exchange_peers(members, self.rank, members[peer]))
            return call(group, tensors, peer, *args, **kwargs)

        setattr(dist.ProcessGroup, name, watched)
