"""Figures of a log-normal, as options write them: what is not understood is refused."""

from __future__ import annotations

import math

import pytest

from presim.errors import InputError
from presim.post_training.answer_times import answer_times
from presim.post_training.log_normal import LARGEST_RATIO, cut_mean, spread_of_p99, uncut_mean
from presim.post_training.response_lengths import response_lengths


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ("mean=2,mean=3,cv=1", "mean stands twice"),
        ("mean=2,median=3", "'median=3' "),
        ("mean=2,cv", "'cv' "),
        ("mean=nan,cv=1", "'mean=nan' "),
        ("mean=-2,cv=1", "'mean=-2' "),
    ],
)
def test_a_figure_that_is_not_understood_is_refused_wherever_it_is_read(fields: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        response_lengths(f"lognormal:{fields}")
    with pytest.raises(InputError, match=sentence):
        answer_times(f"lognormal:{fields}", "--tool-seconds")


def test_the_mean_before_a_cut_has_the_mean_behind_it() -> None:
    spread = spread_of_p99(4.0)
    deviation = math.sqrt(math.log1p(spread**2))
    assert cut_mean(math.log(uncut_mean(8000.0, spread, 20000.0)), deviation, 20000.0) == pytest.approx(8000.0)
    assert spread_of_p99(1.0) == 0.0
    assert spread_of_p99(LARGEST_RATIO) == pytest.approx(math.sqrt(math.expm1(2.3263**2)))
