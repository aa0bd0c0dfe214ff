"""Collectives of a profile, from the fields that PyTorch adds to NCCL kernels and their calls."""

from __future__ import annotations

from typing import Any

from presim.sources.kineto.events import Event, Profile, presim_argument, whole_number
from presim.trace.abbreviated_ranks import read_ranks
from presim.trace.collective import Collective
from presim.trace.dtypes import dtype_bytes
from presim.trace.schema import Group

TYPES = {
    "Float": "float32",
    "Double": "float64",
    "BFloat16": "bfloat16",
    "Half": "float16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
    "Byte": "uint8",
    "Char": "int8",
    "Bool": "bool",
    "Float8_e4m3fn": "float8_e4m3fn",
    "Float8_e5m2": "float8_e5m2",
}
_KINDS = (  # (part of PyTorch's name, kind); the first match counts
    ("reduce_scatter", "reduce_scatter"),
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("all_reduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("all_gather", "all_gather"),
    ("all_to_all", "all_to_all"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("barrier", "barrier"),
    ("recv", "recv"),
    ("send", "send"),
)
_MOST_ELEMENTS = 1 << 50  # of a message, or ranks of a group
_SENT = ("reduce_scatter", "all_to_all", "send", "scatter")  # kinds with the size of their input


def is_nccl(event: Event) -> bool:
    """Whether a kernel belongs to NCCL."""
    return event.cat.lower() == "kernel" and event.name.startswith(("nccl", "rccl", "mscclKernel"))


class Groups:
    """Process groups of one rank's profile; those listed by PyTorch come first."""

    def __init__(self, profile: Profile, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self._groups: list[Group] = []
        self._index_by_name: dict[str, int] = {}
        for listed in profile.groups:
            ranks = _ranks(listed.get("ranks"), world_size)
            called = str(listed.get("pg_desc", ""))
            name = str(listed.get("pg_name", ""))
            self._add_group(name, ranks, _size(listed, "pg_size") or len(ranks), called)

    def table(self) -> tuple[Group, ...]:
        """All groups so far, in the order of their indices."""
        return tuple(self._groups)

    def collective(self, event: Event, call: Event | None) -> Collective | None:
        """The collective of an NCCL kernel; None if unknown. ``call``: the operator that launched it."""
        if "presim signature" in event.args:
            return presim_argument(event, "presim signature", Collective)
        fields = event.args if "Collective name" in event.args else call.args if call is not None else {}
        name = str(fields.get("Collective name", "")).lower()
        kind = next((kind for part, kind in _KINDS if part in name), "")
        dtype = TYPES.get(str(fields.get("dtype", "")), "")
        if not kind or not dtype:
            return None
        size = _size(fields, "Group size")
        ranks = _ranks(fields.get("Process Group Ranks"), self._world_size, size)
        size = size or len(ranks)
        index = self._add_group(str(fields.get("Process Group Name", "")), ranks, size)
        elements = _size(fields, "In msg nelems" if kind in _SENT else "Out msg nelems")
        if kind == "all_gather":
            elements = max(elements, _size(fields, "In msg nelems") * size)
        return Collective(kind, elements * dtype_bytes(dtype), dtype, index, self._peer(kind, fields, index))

    def _peer(self, kind: str, fields: dict[str, Any], index: int) -> int:
        if kind not in ("send", "recv"):
            return -1
        ranks = self._groups[index].ranks
        other = _size(fields, "Dst Rank" if kind == "send" else "Src Rank", -1)
        return ranks.index(other) if other in ranks else other

    def _add_group(self, name: str, ranks: tuple[int, ...], size: int, called: str = "") -> int:
        index = self._index_by_name.get(name)
        if index is not None and (self._groups[index].ranks or not ranks):
            return index
        if not ranks and size == self._world_size:
            ranks = tuple(range(size))
        called = called if called not in ("", "undefined") else name
        group = Group(called or f"group of {size}", ranks, max(size, len(ranks)))
        if index is not None:
            self._groups[index] = group
            return index
        self._index_by_name[name] = len(self._groups)
        self._groups.append(group)
        return self._index_by_name[name]


def _ranks(fields: object, world_size: int, size: int = 0) -> tuple[int, ...]:
    """Parse ranks as PyTorch writes them: a list or its text; empty if abbreviated beyond what ``size`` tells.

    >>> _ranks("[0, 2, 4]", 8), _ranks([1, 3], 8), _ranks("[0, 1, ..., 63]", 64), _ranks("[0, 1, ..., 63]", 64, 64)[-1]
    ((0, 2, 4), (1, 3), (), 63)
    """
    if isinstance(fields, str):
        return tuple(rank for rank in read_ranks(fields, size) if rank < world_size)
    if not isinstance(fields, list) or not all(type(rank) is int and 0 <= rank < world_size for rank in fields):
        return ()
    return tuple(fields)


def _size(fields: dict[str, Any], key: str, default: int = 0) -> int:
    size = whole_number(fields.get(key, default), default)
    return size if abs(size) <= _MOST_ELEMENTS else default
