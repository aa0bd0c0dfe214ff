"""What rank processes are told of each other."""

from __future__ import annotations

from pathlib import Path

from presim.capture.rendezvous.payload_mail import together, write_ranks


def test_ranks_that_are_stood_for_take_few_words(tmp_path: Path) -> None:
    """A file that does not grow with the world."""
    write_ranks(tmp_path, {8: range(9, 100_008), 0: (1, 3, 5, 6), 4: ()})
    assert (tmp_path / "ranks").read_text() == "0 1:6:2,6\n4\n8 9:100008:1\n"


def test_a_process_is_told_its_rank_the_world_and_where_the_others_are(tmp_path: Path) -> None:
    expected = {"PRESIM_RANKS_DIR": str(tmp_path), "PRESIM_RANK": "3", "PRESIM_WORLD_SIZE": "8"}
    assert together(tmp_path, 3, 8) == expected
