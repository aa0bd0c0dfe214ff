"""An open-addressing hash table of keys within an array; its size is a power of two, and 0 means no key."""

from __future__ import annotations

from presim.serving.fast.state import Column


def home(key: int, mask: int) -> int:
    """Home position of a key, relative to the table's start."""
    mixed = (key ^ (key >> 21) ^ (key >> 41)) & 0xFFFFFFFF
    return ((mixed * 1640531527) >> 20) & mask


def find_place(keys: Column, first: int, mask: int, key: int) -> int:
    """Position of a key, or the empty position where it belongs."""
    at = home(key, mask)
    while keys[first + at] != 0 and keys[first + at] != key:
        at = (at + 1) & mask
    return first + at


def drop_place(keys: Column, values: Column, first: int, mask: int, at: int) -> None:
    """Remove a key; later keys that it had displaced move up."""
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
