"""Types of a request's fields that change no time here; vLLM's models of requests refuse others.

Those are in 0.33's entrypoints/openai. Fields are read as pydantic does where it is not strict: a number may stand in
a text, and a truth value may be 0 or "no".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_WORDS = ("0", "1", "true", "false", "t", "f", "yes", "no", "y", "n", "on", "off")
_LONGEST_NUMBER = 4300  # digits that Python reads


def problem(body: Mapping[str, Any], *, is_chat: bool) -> tuple[str, str] | None:
    """The first field of another type, and what it should be; None: there is none."""
    fields = _BOTH | (_CHAT if is_chat else {})
    for name, (is_valid, words) in fields.items():
        value = body.get(name)
        if value is not None and not is_valid(value):
            return name, f"Input should be a valid {words}"
    return None


def _is_whole(value: object) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, float):
        return value.is_integer()
    if isinstance(value, str):
        return len(value) <= _LONGEST_NUMBER and re.fullmatch(r"\s*[+-]?\d+\s*", value) is not None
    return isinstance(value, int)


def _is_truth(value: object) -> bool:
    if isinstance(value, str):
        return value.lower() in _WORDS
    return isinstance(value, bool | int | float) and value in (0, 1)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def _are_whole(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_whole, value))


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_mappings(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_mapping, value))


def _are_biases(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_whole(token) and isinstance(bias, int | float) and not isinstance(bias, bool)
        for token, bias in value.items()
    )


def _is_choice(value: object) -> bool:
    return _is_text(value) or _is_mapping(value)


Check = tuple[Callable[[object], bool], str]
_WHOLE: Check = (_is_whole, "integer")
_TRUTH: Check = (_is_truth, "boolean")
_TEXT: Check = (_is_text, "string")
_MAPPING: Check = (_is_mapping, "dictionary")
_BOTH: dict[str, Check] = {
    "seed": _WHOLE,
    "priority": _WHOLE,
    "truncate_prompt_tokens": _WHOLE,
    "user": _TEXT,
    "request_id": _TEXT,
    "ignore_eos": _TRUTH,
    "skip_special_tokens": _TRUTH,
    "spaces_between_special_tokens": _TRUTH,
    "add_special_tokens": _TRUTH,
    "return_token_ids": _TRUTH,
    "use_beam_search": _TRUTH,
    "stop_token_ids": (_are_whole, "list of integers"),
    "allowed_token_ids": (_are_whole, "list of integers"),
    "logit_bias": (_are_biases, "dictionary of token ids and numbers"),
    "kv_transfer_params": _MAPPING,
    "vllm_xargs": _MAPPING,
}
_CHAT: dict[str, Check] = {
    "tools": (_are_mappings, "list of dictionaries"),
    "tool_choice": (_is_choice, "string or dictionary"),
    "parallel_tool_calls": _TRUTH,
    "add_generation_prompt": _TRUTH,
    "continue_final_message": _TRUTH,
    "chat_template": _TEXT,
    "chat_template_kwargs": _MAPPING,
    "documents": (_are_mappings, "list of dictionaries"),
    "reasoning_effort": _TEXT,
}
