"""Lengths of responses: distributions are read as they are written, or refused with what they can be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.post_training.response_lengths import draw_groups, group_share, longest, response_lengths


@given(st.integers(100, 10_000), st.floats(1.05, 10.0))
def test_a_log_normal_has_the_mean_and_percentile_that_are_given(mean: int, ratio: float) -> None:
    lengths = response_lengths(f"lognormal:mean={mean},p99={mean * ratio:.0f}")
    drawn = lengths.draw(np.random.default_rng(0), 200_000)
    assert drawn.mean() == pytest.approx(mean, rel=0.08)
    assert np.percentile(drawn, 99) == pytest.approx(mean * ratio, rel=0.08)


def test_responses_are_cut_at_their_bound() -> None:
    lengths = response_lengths("lognormal:mean=8000,p99=30000,max=32768")
    assert lengths.draw(np.random.default_rng(0), 100_000).max() == 32768
    assert longest(lengths) == 32768


@given(st.integers(1000, 20_000), st.floats(0.0, 2.0), st.floats(1.05, 8.0))
def test_the_mean_is_that_of_lengths_that_are_cut(mean: int, spread: float, ratio: float) -> None:
    lengths = response_lengths(f"lognormal:mean={mean},cv={spread},max={mean * ratio:.0f}")
    drawn = lengths.draw(np.random.default_rng(0), 200_000)
    assert drawn.mean() == pytest.approx(mean, rel=0.04)
    assert drawn.max() <= round(mean * ratio)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_responses_to_a_prompt_are_alike_by_their_share(share: float) -> None:
    """The share of the variance of log-lengths between groups, found again in what is drawn."""
    word = f"lognormal:mean=5000,cv=0.7,group={share}"
    assert group_share(word) == share
    lengths = draw_groups(response_lengths(word), 2000, 8, share, np.random.default_rng(0))
    logs = np.log(lengths.reshape(2000, 8))
    within = logs.var(axis=1, ddof=1).mean()
    assert 1 - within / logs.var(ddof=1) == pytest.approx(share, abs=0.03)
    assert lengths.mean() == pytest.approx(5000, rel=0.05)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("lognormal:p99=30", "'lognormal:p99=30' has no mean; write it like lognormal:mean=8000,p99=30000,max=32768"),
        (
            "lognormal:mean=100,p99=5000",
            "no log-normal with a mean of 100 has its 99th percentile at 5,000: that lies from 100 to 1,497; correct "
            "p99",
        ),
        (
            "lognormal:mean=100,p99=300,max=50",
            "responses of 100 tokens on average are above their max=50; correct one of both",
        ),
        (
            "lognormal:mean=100,p98=300",
            "'p98=300' in 'lognormal:mean=100,p98=300' is not one of mean, p99 and max (1 to 1,048,576 tokens), cv, or "
            "group (0 to 1); write it like lognormal:mean=8000,p99=30000,max=32768",
        ),
    ],
)
def test_other_words_are_refused(word: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        response_lengths(word)
    assert str(error.value) == sentence
