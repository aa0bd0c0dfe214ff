"""Seconds of answers: their notation, their distribution, or one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.errors import InputError
from presim.post_training.answer_times import AnswerTimes, answer_times


@pytest.mark.parametrize(
    ("word", "times"),
    [
        ("0", AnswerTimes()),
        ("2", AnswerTimes(2.0)),
        ("0.5~0.8", AnswerTimes(0.5, 0.8)),
        ("lognormal:mean=2,cv=1.5", AnswerTimes(2.0, 1.5)),
    ],
)
def test_notation(word: str, times: AnswerTimes) -> None:
    assert answer_times(word, "--tool-seconds") == times


@given(mean_s=st.floats(0.1, 100), ratio=st.floats(1.2, 10), cut=st.floats(1.5, 20))
def test_the_mean_is_that_of_cut_answers(mean_s: float, ratio: float, cut: float) -> None:
    times = answer_times(f"lognormal:mean={mean_s},p99={mean_s * ratio},max={mean_s * cut}", "--tool-seconds")
    assert times.expected_s == pytest.approx(mean_s, rel=1e-3)
    drawn = times.draw(np.random.default_rng(0), (50_000,))
    assert drawn.mean() == pytest.approx(mean_s, rel=0.15)
    assert drawn.max() <= mean_s * cut


def test_measured_seconds_are_drawn(tmp_path: Path) -> None:
    file = tmp_path / "seconds.txt"
    file.write_text("0.5\n2\n9.5\n")
    times = answer_times(str(file), "--tool-seconds")
    assert set(times.draw(np.random.default_rng(0), (100,)).tolist()) == {0.5, 2.0, 9.5}
    assert times.expected_s == 4.0
    assert times.text == "4 s an answer on average, measured"


@pytest.mark.parametrize("word", ["", "fast", "-1", "2~", "1~99", "inf", "nan"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(InputError) as error:
        answer_times(word, "--tool-seconds")
    assert str(error.value) == (
        "--tool-seconds is a number of seconds (at most 100,000) or their distribution, written as 2, 2~0.8, "
        f"lognormal:mean=2,p99=20,max=60 or a file of seconds, not {word!r}; correct it"
    )


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "lognormal:mean=2,p98=20",
            "--reward-seconds: 'p98=20' is not one of mean, p99 and max (0 to 100,000 s) and cv (0 to 10); write it "
            "like lognormal:mean=2,p99=20,max=60",
        ),
        (
            "lognormal:p99=20",
            "--reward-seconds: 'lognormal:p99=20' needs a mean above 0, and either p99 or cv (deviation / mean); write "
            "it like lognormal:mean=2,p99=20,max=60",
        ),
        ("lognormal:mean=9,cv=1,max=2", "--reward-seconds: 9 s on average are above max=2; correct one of both"),
        (
            "lognormal:mean=2,p99=90",
            "--reward-seconds: no log-normal with a mean of 2 s has its 99th percentile at 90: that lies from 2 to "
            "29.9; correct p99",
        ),
    ],
)
def test_impossible_log_normals_are_refused(word: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        answer_times(word, "--reward-seconds")
    assert str(error.value) == sentence


def test_a_file_of_words_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "seconds.txt"
    file.write_text("1\nsoon\n")
    with pytest.raises(InputError, match=r"contains something other than numbers .*; list seconds, one per line"):
        answer_times(str(file), "--tool-seconds")
