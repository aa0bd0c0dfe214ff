"""Collectives in PyTorch profiler traces of several ranks: their own duration, and the delay by late ranks.

A collective's kernel also waits for other ranks. On the last rank it takes only the transfer time, on the others
longer. The shortest time of all ranks is the collective's own duration. The third quartile over it is the straggler
ratio (TorchSim, appendix F, equation 13).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from presim.cost.measured.importers import kineto
from presim.errors import InputError
from presim.trace.abbreviated_ranks import read_ranks
from presim.trace.dtypes import dtype_bytes

# PyTorch's names in a kernel's arguments -> presim's, and which side has all the bytes that `Collective` counts.
_KINDS = {
    "allreduce": ("all_reduce", "In"),
    "_allgather_base": ("all_gather", "Out"),
    "allgather": ("all_gather", "Out"),
    "_reduce_scatter_base": ("reduce_scatter", "In"),
    "reduce_scatter": ("reduce_scatter", "In"),
    "broadcast": ("broadcast", "In"),
    "reduce": ("reduce", "In"),
    "all_to_all": ("all_to_all", "In"),
}
_DTYPES = {
    "BFloat16": "bfloat16",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "Byte": "uint8",
    "Char": "int8",
    "Int": "int32",
    "Long": "int64",
}


@dataclasses.dataclass(frozen=True)
class ProfiledCollective:
    """One collective and its time on each profiled rank."""

    kind: str
    bytes: int
    dtype: str
    ranks: tuple[int, ...]  # of the group
    microseconds: tuple[float, ...]  # ascending

    @property
    def own_us(self) -> float:
        """Duration once all ranks have arrived."""
        return self.microseconds[0]

    @property
    def late(self) -> float:
        """Time of the rank at the third quartile over the shortest time."""
        return self.microseconds[int(0.75 * (len(self.microseconds) - 1) + 0.5)] / self.own_us


_Key = tuple[str, int, str, tuple[int, ...]]


def read(paths: Sequence[Path]) -> tuple[list[ProfiledCollective], dict[str, int]]:
    """The collectives of a job from one trace per rank, and the rejected ones, counted by reason.

    Calls of one kind, size and group are matched by order, so the traces must cover the same steps.

    Raises:
        InputError: a file is no PyTorch profiler trace, or fewer than two are given.
    """
    if len(paths) < 2:
        raise InputError("a collective's own time is the shortest of several ranks; give the traces of two or more")
    times_by_call: dict[tuple[_Key, int], list[float]] = collections.defaultdict(list)
    rejected: collections.Counter[str] = collections.Counter()
    for path in paths:
        counts: collections.Counter[_Key] = collections.Counter()
        for row in _rows(path):
            if isinstance(row, str):
                rejected[row] += 1
                continue
            key, microseconds = row
            times_by_call[key, counts[key]].append(microseconds)
            counts[key] += 1
    profiled = [
        ProfiledCollective(*key, tuple(sorted(times))) for (key, _), times in times_by_call.items() if len(times) > 1
    ]
    if unmatched_calls := sum(len(times) == 1 for times in times_by_call.values()):
        rejected["in the trace of one rank only"] += unmatched_calls
    return profiled, dict(sorted(rejected.items()))


def _rows(path: Path) -> Iterator[tuple[_Key, float] | str]:
    trace = kineto.load(path)
    groups = _listed_groups(trace)
    events = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    for event in sorted(events, key=lambda event: float(event.get("ts", 0))):
        args = event.get("args", {})
        if "Collective name" in args:
            key = _key(args, groups)
            yield key if isinstance(key, str) else (key, float(event.get("dur", 0)))


def _listed_groups(trace: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The ranks of the process groups that the head of the file lists, by name; the world is all of its ranks."""
    info = trace.get("distributedInfo")
    listed = info.get("pg_config") if isinstance(info, dict) else None
    groups: dict[str, tuple[int, ...]] = {}
    for group in listed if isinstance(listed, list) else ():
        if not isinstance(group, dict):
            continue
        ranks, size = group.get("ranks"), group.get("pg_size")
        if isinstance(ranks, list) and all(type(rank) is int for rank in ranks):
            groups[str(group.get("pg_name", ""))] = tuple(ranks)
        elif isinstance(size, int) and isinstance(info, dict) and size == info.get("world_size"):
            groups[str(group.get("pg_name", ""))] = tuple(range(size))
    return {name: ranks for name, ranks in groups.items() if ranks}


def _key(args: dict[str, Any], groups: dict[str, tuple[int, ...]]) -> _Key | str:
    name = str(args["Collective name"])
    if name not in _KINDS:
        return f"{name}, which is not supported"
    kind, side = _KINDS[name]
    dtype = _DTYPES.get(str(args.get("dtype", "")))
    try:
        size = int(args.get("Group size", 0))
        ranks = read_ranks(str(args["Process Group Ranks"]), size)
        elements = int(args[f"{side} msg nelems"])
    except (KeyError, ValueError, TypeError):
        return "the profile has no ranks of the group, or no size"
    ranks = ranks or groups.get(str(args.get("Process Group Name", "")), ())
    if not ranks:
        return "the profiler shortened the ranks of a large group, and the file does not list them elsewhere"
    if dtype is None or elements < 1 or len(ranks) < 2:
        return "an unsupported data type or group"
    return kind, elements * dtype_bytes(dtype), dtype, ranks
