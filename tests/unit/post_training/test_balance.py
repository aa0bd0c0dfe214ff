"""Sequences over ranks and micro-batches: each is somewhere once, and parts are nearly equal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.post_training import balance
from presim.post_training.balance import balanced, micro_batches, sizes

LENGTHS = st.lists(st.integers(1, 4000), min_size=8, max_size=64).map(lambda found: np.array(found, np.int64))


@given(LENGTHS, st.sampled_from((1, 2, 4)))
def test_each_sequence_is_in_one_part(lengths: np.ndarray, parts: int) -> None:
    lengths = lengths[: len(lengths) // parts * parts]
    members = balanced(lengths, parts, is_equal=True)
    assert sorted(np.concatenate(members).tolist()) == list(range(len(lengths)))
    assert {len(part) for part in members} == {len(lengths) // parts}


@given(LENGTHS, st.integers(1, 8))
def test_free_parts_differ_by_less_than_the_longest_sequence(lengths: np.ndarray, parts: int) -> None:
    loads = [int(lengths[part].sum()) for part in balanced(lengths, parts, is_equal=False)]
    assert max(loads) - min(loads) <= lengths.max()


@given(LENGTHS, LENGTHS, st.integers(4000, 9000))
def test_micro_batches_hold_all_tokens_and_none_is_too_large(first: np.ndarray, second: np.ndarray, most: int) -> None:
    tokens, squares = sizes(micro_batches([first, second], most))
    assert tokens.sum(axis=1).tolist() == [first.sum(), second.sum()]
    assert squares.sum(axis=1).tolist() == [(first**2).sum(), (second**2).sum()]
    assert tokens.max() <= most


def test_a_sequence_above_a_micro_batch_is_refused() -> None:
    with pytest.raises(InputError) as error:
        micro_batches([np.array([10, 300])], 256)
    assert str(error.value) == (
        "a sequence has 300 tokens, more than the 256 of a micro-batch; use more --micro-tokens"
    )


def test_shares_are_consecutive_without_balancing() -> None:
    lengths = np.array([9, 8, 1, 2])
    assert [share.tolist() for share in balance.shares(lengths, 2, balances=False)] == [[9, 8], [1, 2]]
    assert sorted(share.sum() for share in balance.shares(lengths, 2, balances=True)) == [10, 10]


def test_padding_to_the_longest_counts_it_for_each_sequence() -> None:
    tokens, squares = balance.padded_sizes([[np.array([3, 4]), np.array([10])]], 10, 20)
    assert (tokens.tolist(), squares.tolist()) == ([[20, 10]], [[200, 100]])
    with pytest.raises(InputError, match="a micro-batch of 2 sequences padded to 10 tokens has 20, more than the 19"):
        balance.padded_sizes([[np.array([3, 4])]], 10, 19)
