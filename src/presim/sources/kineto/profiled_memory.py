"""Peaks of device memory in profiles that were recorded with ``profile_memory=True``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from presim.errors import InputError
from presim.system.files import MOST_UNSIGNED, FormatError, decode_json, read_profile

_EVENT = "[memory]"
_CUDA = 1  # torch's number of the device type
_MOST_BYTES = 1 << 50


@dataclasses.dataclass(frozen=True)
class Peaks:
    """Largest values of PyTorch's caching allocator, in bytes."""

    allocated: int
    reserved: int


class _Event(msgspec.Struct, frozen=True):
    ph: str = ""
    name: str = ""
    args: dict[str, Any] = {}


class _File(msgspec.Struct, frozen=True):
    traceEvents: list[_Event]


def read_peaks(paths: Sequence[Path]) -> Peaks | None:
    """The peaks of the fullest rank; None if no file has memory events of a GPU.

    Raises:
        InputError: a file cannot be read, or a size in it cannot be.
    """
    rank_peaks = [peaks for path in paths if (peaks := _of_file(path)) is not None]
    return max(rank_peaks, key=lambda peaks: (peaks.allocated, peaks.reserved), default=None)


def _of_file(path: Path) -> Peaks | None:
    try:
        file = decode_json(read_profile(path), _File, most_integer=MOST_UNSIGNED)
    except FormatError as error:
        raise InputError(f"{path} is no Chrome trace of PyTorch's profiler: {error}") from error
    events = [event.args for event in file.traceEvents if event.name == _EVENT and event.ph == "i"]
    sizes = [
        (_size(args, "Total Allocated", path), _size(args, "Total Reserved", path))
        for args in events
        if args.get("Device Type") == _CUDA
    ]
    return Peaks(max(size for size, _ in sizes), max(size for _, size in sizes)) if sizes else None


def _size(args: dict[str, Any], key: str, path: Path) -> int:
    size = args.get(key)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _MOST_BYTES:
        raise InputError(f"{path}: a memory event has {key} = {size!r}; it takes bytes below 2^50; record it again")
    return size
