"""Who stands for whom."""

from __future__ import annotations

import pytest

from presim.errors import InputError
from presim.trace.representatives import Representatives


def test_every_rank_that_is_stood_for_is_found() -> None:
    ranks = Representatives([8, 0], {0: (1, 2), 8: range(9, 12)})
    assert ranks.of([0, 1, 2, 8, 9, 11]).tolist() == [0, 0, 0, 8, 8, 8]
    assert (ranks.count(0), ranks.count(8), ranks.represented) == (3, 4, 7)


def test_a_rank_nobody_stands_for_is_known_by_its_own_number() -> None:
    """So that two groups with different absent members are not taken for one."""
    assert Representatives([4]).of([4, 5, 6]).tolist() == [4, -6, -7]


def test_two_ranks_cannot_stand_for_one() -> None:
    with pytest.raises(InputError, match=r"^ranks 0 and 8 both represent rank 9; capture the job again$"):
        Representatives([0, 8], {0: (9,), 8: (9,)})


def test_who_was_not_captured_stands_for_nobody() -> None:
    with pytest.raises(InputError, match=r"^rank 3 represents others and was not captured; capture the job again$"):
        Representatives([0], {3: (4,)})
