"""Settings of the payload exchange."""

from __future__ import annotations

from pathlib import Path

from presim.capture.rendezvous.payload_mail import exchange_variables, write_ranks


def test_represented_ranks_are_written_as_spans(tmp_path: Path) -> None:
    """The file does not grow with the world."""
    write_ranks(tmp_path, {8: range(9, 100_008), 0: (1, 3, 5, 6), 4: ()})
    assert (tmp_path / "ranks").read_text() == "0 1:6:2,6\n4\n8 9:100008:1\n"


def test_the_variables_have_rank_world_size_and_directory(tmp_path: Path) -> None:
    expected = {"PRESIM_RANKS_DIR": str(tmp_path), "PRESIM_RANK": "3", "PRESIM_WORLD_SIZE": "8"}
    assert exchange_variables(tmp_path, 3, 8) == expected
