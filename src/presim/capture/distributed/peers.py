"""Whom a rank sends to and receives from: such ranks differ, and have to run together.

Pipelines are known by the names of their groups as soon as these are made; whatever else sends is met when it does.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Collection
from typing import Any

import torch.distributed as dist

# What frameworks call groups of pipeline stages: mesh_pp (DeviceMesh), PIPELINE_MODEL_PARALLEL_GROUP (Megatron).
# Megatron's EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP is none: not all of its members exchange.
_PIPELINE = re.compile(r"(?:^|_)(?:pp|pipe|pipeline)(?:_|$)", re.IGNORECASE)
_WIDER = re.compile(r"(?:^|_)(?:dp|data|tp|tensor|cp|context|ep|expert)(?:_|$)", re.IGNORECASE)
MOST = 64  # members of a group that are taken to differ only because some of them send


class Peers:
    """Tells ``lacks`` of the first exchange with ranks that do not run, and does not come back from there."""

    def __init__(self, rank: int, present: Collection[int], lacks: Callable[[tuple[int, ...]], None]) -> None:
        self.rank = rank
        self.present = set(present)
        self.lacks = lacks
        self._known: set[tuple[int, int]] = set()  # (id of a group, peer) that have been looked at

    def install(self) -> None:
        """Before the script runs."""
        if not dist.is_available():
            return
        self._watch_groups()
        for name in ("send", "recv"):
            self._watch_messages(name)

    def _need(self, ranks: tuple[int, ...]) -> None:
        if self.rank in ranks and not self.present.issuperset(ranks):
            self.lacks(ranks)

    def _watch_groups(self) -> None:
        module: Any = sys.modules["torch.distributed.distributed_c10d"]
        create = module._new_process_group_helper

        @functools.wraps(create)
        def create_watched(size: int, rank: Any, members: Any, *args: Any, **kwargs: Any) -> Any:
            if members and len(members) <= MOST and is_pipeline(kwargs.get("group_desc") or ""):
                self._need(tuple(members))
            return create(size, rank, members, *args, **kwargs)

        module._new_process_group_helper = create_watched

    def _watch_messages(self, name: str) -> None:
        call = getattr(dist.ProcessGroup, name)

        @functools.wraps(call)
        def watched(group: Any, tensors: Any, peer: int, *args: Any, **kwargs: Any) -> Any:
            if (id(group), peer) not in self._known:
                self._known.add((id(group), peer))
                members = dist.get_process_group_ranks(group)
                self._need(_exchanging(members, self.rank, members[peer]))
            return call(group, tensors, peer, *args, **kwargs)

        setattr(dist.ProcessGroup, name, watched)


def is_pipeline(name: str) -> bool:
    """Whether the members of a group with this name are the stages of one pipeline."""
    return bool(_PIPELINE.search(name)) and not _WIDER.search(name)


def _exchanging(members: list[int], rank: int, peer: int) -> tuple[int, ...]:
    """Of a group in which one member sends to another, those that are taken to exchange as they do.

    The whole group; of a larger one all ranks at the same distance.
    """
    if len(members) <= MOST:
        return tuple(members)
    here, there = members.index(rank), members.index(peer)
    distance = abs(there - here)
    return tuple(members[here % distance :: distance]) if distance else (rank,)
