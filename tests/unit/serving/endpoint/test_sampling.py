"""Numbers for sampling that vLLM refuses are refused with its words, and those that it takes are taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.serving.endpoint.asked import RefusedError, asked_of
from presim.serving.endpoint.sampling import BOUNDS, problem

_BODY = {"prompt": "hello", "max_tokens": 4}


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"temperature": -3}, "temperature must be non-negative, got -3."),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0."),
        ({"top_p": 1.5}, "top_p must be in (0, 1], got 1.5."),
        ({"top_k": -2}, "top_k must be 0 (disable), or at least 1, got -2."),
        ({"min_p": 2}, "min_p must be in [0, 1], got 2."),
        ({"presence_penalty": 2.5}, "presence_penalty must be in [-2, 2], got 2.5."),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be greater than zero, got 0.0."),
    ],
)
def test_numbers_out_of_bounds_are_refused(field: dict[str, float], message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        asked_of({**_BODY, **field}, 100, is_chat=False)
    content = {"message": message, "type": "BadRequestError", "param": next(iter(field)), "code": 400}
    assert refused.value.content == content


@pytest.mark.parametrize("value", ["warm", True, [1.0]])
def test_what_is_no_number_is_refused_as_by_its_form(value: object) -> None:
    with pytest.raises(RefusedError, match="Input should be a valid number"):
        asked_of({**_BODY, "temperature": value}, 100, is_chat=False)


@given(st.sampled_from(BOUNDS), st.floats(0, 1))
def test_numbers_within_bounds_are_taken(bounds: object, share: float) -> None:
    name, lowest, highest = (getattr(bounds, key) for key in ("name", "lowest", "highest"))
    value = highest if highest < 3 else lowest + 1 + share
    assert problem({name: value, "other": "x"}) is None


def test_a_field_that_is_null_is_left_to_its_default() -> None:
    assert asked_of({**_BODY, "temperature": None, "top_p": None}, 100, is_chat=False).choices == 1
