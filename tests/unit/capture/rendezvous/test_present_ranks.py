"""What the store answers in the name of ranks that do not run."""

from __future__ import annotations

from presim.capture.rendezvous.present_ranks import PresentRanks, absent_rank_value, group_prefix, posted_key

GROUP = group_prefix(range(0, 128, 8), [0, 16, 24])  # group ranks 0, 2 and 3


def test_a_prefix_names_the_present_members_only() -> None:
    """It does not grow with the group."""
    assert GROUP == "presim-members=0:0;2:16;3:24"
    assert group_prefix(range(100_000), [7]) == "presim-members=7:7"


def test_the_id_of_a_communicator_comes_from_its_first_member_if_that_runs() -> None:
    key = f"default_pg/0/{GROUP}/1/cuda//0"
    assert PresentRanks([0, 16]).answer(key) is None
    assert PresentRanks([16, 24]).answer(key) == absent_rank_value(key)
    assert len(absent_rank_value(key)) == 128


def test_the_id_of_a_pair_comes_from_the_lower_rank() -> None:
    presence = PresentRanks([0, 16, 24])
    assert presence.answer(f"{GROUP}/1/cuda//2:5") is None
    assert presence.answer(f"{GROUP}/1/cuda//1:2") is not None


def test_the_innermost_group_of_a_key_is_meant() -> None:
    """Stores of groups nest: a group's store is made from its parent's."""
    inner = group_prefix([16, 40], [0, 16, 24])
    assert PresentRanks([0, 24]).answer(f"{GROUP}/0/{inner}/5/cuda//0") is not None
    assert PresentRanks([16, 24]).answer(f"{GROUP}/0/{inner}/5/cuda//0") is None


def test_what_a_rank_posts_is_waited_for_as_long_as_it_runs() -> None:
    presence = PresentRanks([0, 16])
    key = f"{GROUP}/{posted_key(16, 'allgather/1')}"
    assert presence.answer(key) is None
    presence.left(16)
    assert presence.answer(key) == b""


def test_other_keys_are_answered_when_nobody_moves_any_more() -> None:
    still = False
    presence = PresentRanks([0, 16], lambda: still)
    assert presence.answer("mine") is None
    still = True
    assert presence.answer("mine") == b"1"


def test_a_lone_rank_and_barriers_are_answered_at_once() -> None:
    assert PresentRanks([5]).answer("anything") == b"1"
    assert PresentRanks([0, 16]).answer("store_based_barrier_key:1:last_member") == b"1"
