"""Names have numbers of their own, and storages of one block lie side by side for all micro-batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from presim.composition.names import NOTHING, Names

MICROS = 4
STORAGES = st.tuples(st.integers(0, MICROS - 1), st.integers(0, 3), st.integers(0, 3), st.booleans(), st.integers(0, 5))
OTHERS = st.tuples(st.sampled_from(["fsdp", "held", "bucket"]), st.integers(0, 5))


@given(st.lists(st.none() | STORAGES | OTHERS, max_size=40), st.integers(0, 5))
def test_equal_keys_and_only_those_have_equal_numbers(keys: list[tuple[object, ...] | None], more: int) -> None:
    names = Names(MICROS)
    numbers = names.of(keys).tolist()
    fresh = names.new(more).tolist()
    dense = names.dense(names.of(keys)).tolist()
    assert names.of(keys).tolist() == numbers
    assert len({*numbers, *fresh} - {NOTHING}) == len(set(keys) - {None}) + more
    assert all((number == NOTHING) == (key is None) for number, key in zip(numbers, keys))
    assert len(set(dense)) == len(set(numbers))
    assert all(0 <= number < names.size or key is None for number, key in zip(dense, keys))


def test_the_number_of_a_storage_is_that_of_the_first_micro_batch_and_its_own_micro_batch() -> None:
    names = Names(MICROS)
    first, last = names.of([(0, 1, 2, False, 3), (3, 1, 2, False, 3)]).tolist()
    assert last == first + 3
