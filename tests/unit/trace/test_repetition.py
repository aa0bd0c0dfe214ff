"""The shortest sequence of launches that most of a sequence repeats."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from presim.trace.repetition import Repetition, find_repetition

WORDS = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def period_of(word: list[int]) -> int:
    """The shortest period with which a word's repetition repeats."""
    return next(p for p in range(1, len(word) + 1) if len(word) % p == 0 and word == word[:p] * (len(word) // p))


@given(word=WORDS, repeats=st.integers(3, 40), before=st.lists(st.integers(4, 9), max_size=5))
def test_a_word_is_found_behind_what_is_done_once(word: list[int], repeats: int, before: list[int]) -> None:
    keys = np.array([*before, *(word * repeats)])
    found = find_repetition(keys)
    if len(before) > len(word) * repeats:
        return
    assert found is not None
    assert found.start == len(before)
    assert period_of(word) % found.period == 0 or found.period * 3 <= len(word) * repeats
    stretch = keys[found.start : found.start + found.period * found.repeats]
    assert (stretch.reshape(found.repeats, found.period) == stretch[: found.period]).all()


def test_a_long_sequence_of_nested_loops_repeats_with_the_outer_one() -> None:
    step = [0, *([1, 2, 3] * 24), 4, 5]
    keys = np.array([9, 8, 7, *(step * 200)])
    assert len(keys) > 3_000
    assert find_repetition(keys) == Repetition(3, len(step), 200)


def test_sizes_that_are_tried_one_after_the_other_do_not_repeat() -> None:
    assert find_repetition(np.repeat(np.arange(6), 20)) is None
    assert find_repetition(np.array([], np.int64)) is None
    assert find_repetition(np.array([1, 1])) is None
