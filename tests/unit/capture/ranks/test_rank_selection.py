"""Parsing of ``--ranks``."""

from __future__ import annotations

import pytest

from presim.capture.ranks.rank_selection import Checks, Selection, select
from presim.errors import InputError


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("all", (0, 1, 2, 3)),
        ("0", (0,)),
        ("3,0", (0, 3)),
        ("1-3", (1, 2, 3)),
        ("0:4:2", (0, 2)),
        ("0, 2-3", (0, 2, 3)),
    ],
)
def test_ranks_and_ranges(text: str, ranks: tuple[int, ...]) -> None:
    assert select(text, 4) == Selection(ranks)


def test_auto_leaves_the_choice() -> None:
    assert select("auto", 4, Checks(2)) == Selection(None, Checks(2))
    assert select("auto", 4).ranks is None


@pytest.mark.parametrize(
    ("text", "world_size", "sentence"),
    [
        ("4", 4, "rank 4 is not in a world of 4: choose from 0 to 3"),
        ("0-9", 4, "rank 9 is not in a world of 4: choose from 0 to 3"),
        ("some", 4, "--ranks some: 'some' is not a rank; use auto, all, or ranks and ranges such as 0,8,16-23"),
        ("3-1", 4, "--ranks 3-1: '3-1' is not a rank"),
        ("", 4, "'' is not a rank"),
        ("all", 1024, "--ranks all starts 1024 processes at once, at most 256 can run"),
    ],
)
def test_an_invalid_choice_is_refused_with_one_sentence(text: str, world_size: int, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        select(text, world_size)
    assert sentence in str(caught.value)
