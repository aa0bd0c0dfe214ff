"""Values that the store returns in place of absent ranks."""

from __future__ import annotations

from presim.capture.rendezvous.present_ranks import PresentRanks, absent_rank_value, group_prefix, posted_key

GROUP = group_prefix(range(0, 128, 8), [0, 16, 24])  # group ranks 0, 2 and 3


def test_a_prefix_lists_only_members_that_run() -> None:
    """The prefix does not grow with the group."""
    assert GROUP == "presim-members=0:0;2:16;3:24"
    assert group_prefix(range(100_000), [7]) == "presim-members=7:7"


def test_the_id_of_a_communicator_comes_from_its_first_member_if_that_runs() -> None:
    key = f"default_pg/0/{GROUP}/1/cuda//0"
    assert PresentRanks([0, 16]).answer(key) is None
    assert PresentRanks([16, 24]).answer(key) == absent_rank_value(key)
    assert len(absent_rank_value(key)) == 128


def test_the_id_of_a_pair_comes_from_the_lower_rank() -> None:
    present_ranks = PresentRanks([0, 16, 24])
    assert present_ranks.answer(f"{GROUP}/1/cuda//2:5") is None
    assert present_ranks.answer(f"{GROUP}/1/cuda//1:2") is not None


def test_the_innermost_group_of_a_key_counts() -> None:
    """A group's store is derived from its parent's."""
    inner = group_prefix([16, 40], [0, 16, 24])
    assert PresentRanks([0, 24]).answer(f"{GROUP}/0/{inner}/5/cuda//0") is not None
    assert PresentRanks([16, 24]).answer(f"{GROUP}/0/{inner}/5/cuda//0") is None


def test_a_posted_key_is_awaited_while_its_rank_runs() -> None:
    present_ranks = PresentRanks([0, 16])
    key = f"{GROUP}/{posted_key(16, 'allgather/1')}"
    assert present_ranks.answer(key) is None
    present_ranks.rank_ended(16)
    assert present_ranks.answer(key) == b""


def test_other_keys_are_answered_once_all_ranks_are_idle() -> None:
    still = False
    present_ranks = PresentRanks([0, 16], lambda: still)
    assert present_ranks.answer("mine") is None
    still = True
    assert present_ranks.answer("mine") == b"1"


def test_a_single_rank_and_barriers_are_answered_at_once() -> None:
    assert PresentRanks([5]).answer("anything") == b"1"
    assert PresentRanks([0, 16]).answer("store_based_barrier_key:1:last_member") == b"1"
