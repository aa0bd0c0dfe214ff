"""Fields of another type than vLLM's models of requests have are refused, and what pydantic converts is taken."""

from __future__ import annotations

from typing import Any

import pytest

from presim.serving.endpoint.asked import RefusedError, asked_of

_COMPLETION = {"prompt": "hello", "max_tokens": 4}
_CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"seed": "x"}, "integer"),
        ({"priority": 1.5}, "integer"),
        ({"priority": True}, "integer"),
        ({"user": 4}, "string"),
        ({"ignore_eos": "maybe"}, "boolean"),
        ({"skip_special_tokens": 2}, "boolean"),
        ({"stop_token_ids": ["a"]}, "list of integers"),
        ({"logit_bias": [1]}, "dictionary of token ids and numbers"),
        ({"logit_bias": {"x": 1}}, "dictionary of token ids and numbers"),
        ({"kv_transfer_params": 5}, "dictionary"),
    ],
)
def test_a_field_of_another_type_is_refused(field: dict[str, Any], words: str) -> None:
    for body, is_chat in ((_COMPLETION, False), (_CHAT, True)):
        with pytest.raises(RefusedError) as refused:
            asked_of({**body, **field}, 100, is_chat=is_chat)
        assert f"Input should be a valid {words}" in refused.value.content["message"]
        assert refused.value.content["param"] == f"body.{next(iter(field))}"


@pytest.mark.parametrize("field", [{"tools": 5}, {"tools": [5]}, {"tool_choice": 5}, {"chat_template_kwargs": 5}])
def test_fields_of_a_chat_are_those_of_a_chat_alone(field: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="Input should be a valid"):
        asked_of({**_CHAT, **field}, 100, is_chat=True)
    assert asked_of({**_COMPLETION, **field}, 100, is_chat=False).choices == 1


@pytest.mark.parametrize(
    "field",
    [
        {"seed": 7}, {"seed": "7"}, {"seed": 7.0}, {"ignore_eos": "yes"}, {"ignore_eos": 1}, {"stop_token_ids": [2]},
        {"logit_bias": {"5": -100}}, {"user": None}, {"kv_transfer_params": {}}, {"not_a_field": object()},
    ],
)  # fmt: skip
def test_what_pydantic_converts_is_taken(field: dict[str, Any]) -> None:
    assert asked_of({**_COMPLETION, **field}, 100, is_chat=False).choices == 1


@pytest.mark.parametrize("form", [{"type": 5}, {"type": ["json_object"]}, {"type": "xml"}, {}])
def test_a_form_of_another_name_is_refused(form: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="Input should be 'text' or 'json_object'"):
        asked_of({**_CHAT, "response_format": form}, 100, is_chat=True)
