"""Spread sequences of different lengths over data-parallel ranks and micro-batches, as post-training frameworks do.

verl (utils/seqlen_balancing.py) deals a batch to ranks in equal numbers of balanced sums, by Karmarkar and Karp's
differencing, and packs each rank's share into as many micro-batches as the fullest rank needs. Here sequences go
longest first to the least loaded part with room, whose largest sum differs from that by less than one short sequence.
"""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError

Ints = NDArray[np.int64]


def balanced(lengths: Ints, parts: int, *, is_equal: bool) -> list[Ints]:
    """Indices of sequences by part, sums of lengths balanced; ``is_equal``: parts have the same number of them."""
    room = len(lengths) // parts if is_equal else len(lengths)
    members: list[list[int]] = [[] for _ in range(parts)]
    loads = [(0, part) for part in range(parts)]
    for index in np.argsort(-lengths, kind="stable").tolist():
        load, part = heapq.heappop(loads)
        members[part].append(index)
        if len(members[part]) < room:
            heapq.heappush(loads, (load + int(lengths[index]), part))
    return [np.array(part, np.int64) for part in members]


def shares(lengths: Ints, ranks: int, *, balances: bool) -> list[Ints]:
    """Lengths of each data-parallel rank's sequences, as many on each: with balanced sums, or consecutive ones."""
    if not balances:
        return np.array_split(lengths, ranks)
    return [lengths[np.sort(share)] for share in balanced(lengths, ranks, is_equal=True)]


def micro_batches(ranks: list[Ints], most_tokens: int) -> list[list[Ints]]:
    """Lengths of each micro-batch by rank, all ranks with as many as the fullest needs; none above ``most_tokens``.

    Raises:
        InputError: a sequence alone has more tokens.
    """
    longest = max(int(lengths.max(initial=0)) for lengths in ranks)
    if longest > most_tokens:
        raise InputError(
            f"a sequence has {longest:,} tokens, more than the {most_tokens:,} of a micro-batch; use more "
            "--micro-tokens"
        )
    count = max(math.ceil(int(lengths.sum()) / most_tokens) for lengths in ranks)
    while True:
        packed = [[lengths[part] for part in balanced(lengths, count, is_equal=False)] for lengths in ranks]
        if max(int(micro.sum()) for rank in packed for micro in rank) <= most_tokens:
            return packed
        count += 1


def fixed_micro_batches(ranks: list[Ints], sequences: int, most_tokens: int) -> list[list[Ints]]:
    """Lengths of each micro-batch by rank, each of so many sequences in their order.

    Raises:
        InputError: a micro-batch has more tokens than ``most_tokens``.
    """
    packed = [np.array_split(lengths, math.ceil(len(lengths) / sequences)) for lengths in ranks]
    fullest = max(int(micro.sum()) for rank in packed for micro in rank)
    if fullest > most_tokens:
        raise InputError(
            f"a micro-batch of {sequences} sequences has {fullest:,} tokens, more than the {most_tokens:,} of "
            "--micro-tokens; use more of these or fewer --micro-sequences"
        )
    return packed


def sizes(packed: list[list[Ints]], least_tokens: int = 0) -> tuple[Ints, Ints]:
    """Tokens, padded to ``least_tokens``, and sums of squared lengths, of each micro-batch: [rank, micro-batch]."""
    tokens = np.array([[max(int(micro.sum()), least_tokens) for micro in rank] for rank in packed], np.int64)
    squares = np.array([[int((micro * micro).sum()) for micro in rank] for rank in packed], np.int64)
    return tokens, squares


def padded_sizes(packed: list[list[Ints]], longest: int, most_tokens: int) -> tuple[Ints, Ints]:
    """Tokens and sums of squared lengths of micro-batches whose sequences are padded to ``longest``.

    Raises:
        InputError: a padded micro-batch has more tokens than ``most_tokens``.
    """
    counts = np.array([[len(micro) for micro in rank] for rank in packed], np.int64)
    fullest = int(counts.max()) * longest
    if fullest > most_tokens:
        raise InputError(
            f"a micro-batch of {int(counts.max())} sequences padded to {longest:,} tokens has {fullest:,}, more than "
            f"the {most_tokens:,} of --micro-tokens; use more of these or fewer --micro-sequences"
        )
    return counts * longest, counts * longest**2
