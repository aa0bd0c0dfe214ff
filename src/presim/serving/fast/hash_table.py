"""An open-addressing hash table of keys within an array; its size is a power of two, and 0 means no key."""

from __future__ import annotations

from presim.serving.fast.serving_state import Column


def home_position(key: int, mask: int) -> int:
    """Home position of a key, relative to the table's start."""
    mixed = (key ^ (key >> 21) ^ (key >> 41)) & 0xFFFFFFFF
    return ((mixed * 1640531527) >> 20) & mask


def find_place(keys: Column, first: int, mask: int, key: int) -> int:
    """Position of a key, or the empty position where it belongs."""
    offset = home_position(key, mask)
    while keys[first + offset] != 0 and keys[first + offset] != key:
        offset = (offset + 1) & mask
    return first + offset


def drop_place(keys: Column, values: Column, first: int, mask: int, position: int) -> None:
    """Remove a key; later keys that it had displaced move up."""
    hole = position - first
    probe = hole
    while True:
        probe = (probe + 1) & mask
        key = keys[first + probe]
        if key == 0:
            break
        if ((probe - home_position(key, mask)) & mask) >= ((probe - hole) & mask):
            keys[first + hole] = key
            values[first + hole] = values[first + probe]
            hole = probe
    keys[first + hole] = 0
