"""Keys of 64 bits that tell signatures and axes apart, for many signatures at once.

A key is a sum over fields, modulo 2^64. So the key of an axis follows from the key of a signature by an addition for
each field that may differ. Of 200,000 keys, two are equal with a probability of 1e-9.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import typing
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.cost.measured.axes import LINES, Key, axes
from presim.trace.signatures import MemoryBound, Signature

_MASK = (1 << 64) - 1

Keys = NDArray[np.uint64]


class AxisColumns(NamedTuple):
    """Places of signatures on axes: one row for each signature and axis."""

    keys: Keys  # of axes
    sizes: NDArray[np.int64]
    owners: NDArray[np.int64]  # indices of signatures


def keys_of(signatures: Sequence[Signature]) -> Keys:
    """The key of each signature."""
    keys = np.zeros(len(signatures), np.uint64)
    for kind, indices in _by_kind(signatures).items():
        keys[indices] = _sum_of(kind, _parts(kind, [signatures[index] for index in indices]))
    return keys


def axis_key(axis: Key) -> int:
    """The key of an axis (`presim.cost.measured.axes`)."""
    label, others = axis
    if isinstance(others, msgspec.Struct):
        others = int(keys_of([typing.cast(Signature, others)])[0])
        return (others + _seed(label)) & _MASK
    return _digest(axis)


def axis_columns(signatures: Sequence[Signature]) -> AxisColumns:
    """The places of signatures on all their axes, by the class of signatures."""
    rows = [_memory_axes(signatures)]
    for kind, indices in _by_kind(signatures).items():
        if kind not in LINES:
            continue
        owned = [signatures[index] for index in indices]
        parts, owners = _parts(kind, owned), np.array(indices)
        whole = _sum_of(kind, parts)
        for line in LINES[kind]:
            on_line = np.array([line.fits(signature) for signature in owned])
            keys = whole + np.uint64(_seed(line.label))
            for name in line.names:
                keys += _mixed(np.zeros(1, np.uint64), kind, name) - parts[name]
            sizes = np.array([getattr(signature, line.names[0]) for signature in owned], np.int64)
            rows.append(AxisColumns(keys[on_line], sizes[on_line], owners[on_line]))
    return AxisColumns(*(np.concatenate(column) for column in zip(*rows)))


def _memory_axes(signatures: Sequence[Signature]) -> AxisColumns:
    """Those of memory-bound work, whose axes are no sums over fields."""
    rows = [
        (axis_key(key), size, index)
        for index, signature in enumerate(signatures)
        if isinstance(signature, MemoryBound)
        for key, size in axes(signature)
    ]
    keys, sizes, owners = zip(*rows) if rows else ((), (), ())
    return AxisColumns(np.array(keys, np.uint64), np.array(sizes, np.int64), np.array(owners, np.int64))


def _by_kind(signatures: Sequence[Signature]) -> dict[type, list[int]]:
    indices: dict[type, list[int]] = collections.defaultdict(list)
    for index, signature in enumerate(signatures):
        indices[type(signature)].append(index)
    return indices


def _parts(kind: type, signatures: Sequence[Signature]) -> dict[str, Keys]:
    """What each field adds to the keys of signatures of one class."""
    columns = zip(*map(msgspec.structs.astuple, signatures))
    return {
        name: _mixed(_numbers(values, is_whole), kind, name) for (name, is_whole), values in zip(_fields(kind), columns)
    }


def _sum_of(kind: type, parts: dict[str, Keys]) -> Keys:
    total = np.full(len(next(iter(parts.values()))), _seed(kind.__name__), np.uint64)
    for part in parts.values():
        total += part
    return total


def _numbers(values: Sequence[Any], is_whole: bool) -> Keys:
    """A field's values as numbers that are equal where the values are."""
    if is_whole:
        return np.array([value & _MASK for value in values], np.uint64)
    number_by_value = {value: _digest(float(value) if isinstance(value, int) else value) for value in set(values)}
    return np.array([number_by_value[value] for value in values], np.uint64)


def _mixed(numbers: Keys, kind: type, name: str) -> Keys:
    """Numbers spread over 64 bits, differently for each field (the finaliser of splitmix64; Steele et al. 2014)."""
    mixed = numbers + np.uint64(_seed(f"{kind.__name__}.{name}"))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """Names of the fields and whether they are whole numbers."""
    types = typing.get_type_hints(kind)
    return tuple((field.name, types[field.name] in (int, bool)) for field in msgspec.structs.fields(kind))


@functools.cache
def _seed(text: str) -> int:
    return _digest(text)


def _digest(content: object) -> int:
    return int.from_bytes(hashlib.blake2b(msgspec.msgpack.encode(content), digest_size=8).digest(), "big")
