"""A captured training step in place of a composed one: its micro-batches take as long as captured."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from presim.errors import InputError
from presim.post_training.captured_step import CapturedStep, as_captured
from support.rl_jobs import memory, prices

STEP = CapturedStep("captured", 2, 2048, 2, 3, 1.25, 0.1, 500.0, memory(), ("Loading data.",))


def test_micro_batches_of_the_captured_size_take_as_long_as_captured() -> None:
    composed = prices().training
    scaled = as_captured(composed, STEP, 2)
    tokens, squares = np.array([[4096] * 3]), np.array([[2 * 2048**2] * 3])
    assert scaled.update_s(tokens, squares) == pytest.approx(1.25)
    assert scaled.forward_s(tokens[:, :1], squares[:, :1]) == pytest.approx(0.1)
    assert (scaled.watts, scaled.not_modelled) == (500.0, ("Loading data.",))
    half, whole = (scaled.update_s(tokens // part, squares // part) - scaled.rest_s for part in (2, 1))
    assert half / whole == pytest.approx(
        (composed.update_s(tokens // 2, squares // 2) - composed.rest_s)
        / (composed.update_s(tokens, squares) - composed.rest_s)
    )


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (
            dataclasses.replace(STEP, ranks=8),
            "captured is a step of 8 ranks, and 2 GPUs train; capture it with as many",
        ),
        (
            dataclasses.replace(STEP, step_s=0.01),
            "the step of captured takes 0.01 s, less than the 0.05 s of a composed optimizer and its collectives",
        ),
    ],
)
def test_a_step_of_another_job_is_refused(step: CapturedStep, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        as_captured(prices().training, step, 2)
    assert str(error.value).startswith(sentence)
