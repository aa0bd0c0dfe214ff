"""An open hash table of keys in a part of an array: its size is a power of two, 0 is no key."""

from __future__ import annotations

from presim.serving.fast.state import Column


def home(key: int, mask: int) -> int:
    """The place where a key belongs, from the table's first."""
    mixed = (key ^ (key >> 21) ^ (key >> 41)) & 0xFFFFFFFF
    return ((mixed * 1640531527) >> 20) & mask


def find_place(keys: Column, first: int, mask: int, key: int) -> int:
    """Where a key is, or the empty place where it would be."""
    at = home(key, mask)
    while keys[first + at] != 0 and keys[first + at] != key:
        at = (at + 1) & mask
    return first + at


def drop_place(keys: Column, values: Column, first: int, mask: int, at: int) -> None:
    """Free a place; those behind it that it kept from their own places move up."""
    hole = at - first
    probe = hole
    while True:
        probe = (probe + 1) & mask
        key = keys[first + probe]
        if key == 0:
            break
        if ((probe - home(key, mask)) & mask) >= ((probe - hole) & mask):
            keys[first + hole] = key
            values[first + hole] = values[first + probe]
            hole = probe
    keys[first + hole] = 0
