"""Bodies of requests, checked as vLLM's endpoint checks them (0.33, entrypoints/openai)."""

from __future__ import annotations

import dataclasses
import json
from http import HTTPStatus
from typing import Any

from presim.serving.endpoint import field_types, sampling

CHARACTERS = 4  # characters per token of a text prompt: a rule of thumb
TOKEN = " token"  # the text of each token that the endpoint makes
_DEFAULT_OUTPUT = 16  # tokens of a completion whose request does not say
_FORMS = ("text", "json_object", "json_schema", "structural_tag")
_MOST_PROMPTS, _MOST_CHOICES, _MOST_LOGPROBS = 10_000, 10_000, 20


class RefusedError(Exception):
    """A request that vLLM's endpoint answers with an error."""

    def __init__(self, message: str, param: str | None = None, code: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.code, self.content = code, {"message": message, "type": kind, "param": param, "code": code}


@dataclasses.dataclass(frozen=True)
class Prompt:
    """Tokens of a prompt, and its text."""

    tokens: list[int]
    text: str


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request for completions."""

    prompts: list[Prompt]
    is_chat: bool
    choices: int  # of each prompt
    output: int | None  # tokens of a choice at most; None: as many as fit
    streams: bool
    usage: bool  # a last event with the usage
    running_usage: bool  # and one in each event
    stops: list[str]
    keeps_stop: bool
    least: int  # tokens before which no stop counts
    logprobs: int | None
    echo: bool
    has_grammar: bool
    model: str | None

    @property
    def held_back(self) -> int:
        """Characters that a stream holds back, as they may be the beginning of a stop string."""
        return 0 if self.keeps_stop else max(max(map(len, self.stops), default=1) - 1, 0)

    def output_of(self, prompt: Prompt, longest: int) -> tuple[int, str | None]:
        """Tokens that a choice gets, and the string that ends it before its limit."""
        room = longest - len(prompt.tokens)
        output = room if self.output is None else min(self.output, room)
        if output < 1 and not self.echo:
            raise RefusedError(f"max_tokens must be at least 1, got {output}.", "max_tokens")
        for count in range(max(self.least, 1), output + 1):
            text = TOKEN * count
            ended = [stop for stop in self.stops if stop in text]
            if ended:
                return count, min(ended, key=text.find)
            if count * len(TOKEN) > 2 * max(map(len, self.stops), default=0) + len(TOKEN) * self.least:
                break  # the text repeats itself
        return output, None


def asked_of(body: object, longest: int, *, is_chat: bool) -> Asked:
    """A request's body, checked. ``longest``: tokens of the model at most.

    Raises:
        RefusedError: vLLM would refuse it.
    """
    if not isinstance(body, dict):
        raise invalid("body", "Input should be a valid dictionary or object to extract fields from")
    prompts = [_chat(body)] if is_chat else _prompts(body.get("prompt"))
    if (refusal := sampling.problem(body)) is not None:
        name, why, is_type = refusal
        raise invalid(name, why) if is_type else RefusedError(why, name)
    if (mistyped := field_types.problem(body, is_chat=is_chat)) is not None:
        raise invalid(*mistyped)
    name = "max_completion_tokens" if is_chat and body.get("max_completion_tokens") is not None else "max_tokens"
    output = _whole(body, name, None if is_chat or name in body else _DEFAULT_OUTPUT)
    echo = _truth(body, "echo") and not is_chat
    if output is not None and output > longest:
        message = f"{name}={output} cannot be greater than max_model_len={longest}. Please request fewer output tokens."
        raise RefusedError(message, name)
    if output is not None and output < (0 if echo else 1):
        raise RefusedError(f"max_tokens must be at least 1, got {output}.", "max_tokens")
    for prompt in prompts:
        if len(prompt.tokens) > longest:
            raise RefusedError(
                f"This model's maximum context length is {longest} tokens. However, your prompt contains "
                f"{len(prompt.tokens)} input tokens, which exceeds this limit even without any output tokens. Please "
                "reduce the length of the input prompt.",
                "input_tokens",
            )
    streams, options = _truth(body, "stream"), body.get("stream_options")
    if options is not None and not streams:
        raise RefusedError("Stream options can only be defined when `stream=True`.", "stream_options")
    if options is not None and not isinstance(options, dict):
        raise invalid("stream_options", "Input should be a valid dictionary")
    usage = _truth(options or {}, "include_usage")
    choices = _whole(body, "n", 1)
    if choices is None or not 1 <= choices <= _MOST_CHOICES:
        bound = f"at most {_MOST_CHOICES}" if choices and choices > 1 else "at least 1"
        raise RefusedError(f"n must be {bound}, got {choices}.", "n")
    if not is_chat and body.get("suffix") is not None:
        raise RefusedError("suffix is not currently supported")
    least = _whole(body, "min_tokens", 0) or 0
    if least < 0:
        raise RefusedError(f"min_tokens must be greater than or equal to 0, got {least}.")
    if output is not None and least > output:
        raise RefusedError(f"min_tokens must be less than or equal to max_tokens={output}, got {least}.")
    return Asked(
        prompts, is_chat, choices, output, streams, usage, usage and _truth(options or {}, "continuous_usage_stats"),
        _stops(body.get("stop")), _truth(body, "include_stop_str_in_output"), least, _logprobs(body, is_chat=is_chat),
        echo, _has_grammar(body), _text(body, "model"),
    )  # fmt: skip


def invalid(field: str, message: str) -> RefusedError:
    """The refusal of a body of another form, as FastAPI's validation words it."""
    error = {"type": "value_error", "loc": f"body.{field}", "msg": message}
    return RefusedError(f"1 validation error:\n  {error}", f"body.{field}", kind=HTTPStatus.BAD_REQUEST.phrase)


def _whole(body: dict[str, Any], name: str, default: int | None) -> int | None:
    value = body.get(name, default)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise invalid(name, "Input should be a valid integer")


def _truth(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(name, "Input should be a valid boolean")
    return bool(value)


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise invalid(name, "Input should be a valid string")
    return value


def _stops(value: object) -> list[str]:
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise invalid("stop", "Input should be a valid string or list of strings")
    if not all(stops):
        raise RefusedError("stop cannot contain an empty string.")
    return stops


def _logprobs(body: dict[str, Any], *, is_chat: bool) -> int | None:
    if not is_chat:
        count = _whole(body, "logprobs", None)
        if count is not None and count < 0:
            raise RefusedError("`logprobs` must be a positive value.", "logprobs")
    else:
        shows, count = _truth(body, "logprobs"), _whole(body, "top_logprobs", 0) or 0
        if count and not shows:
            raise RefusedError("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
        if count < 0:
            raise RefusedError("`top_logprobs` must be a positive value.", "top_logprobs")
        count = count if shows else None
    if count is not None and count > _MOST_LOGPROBS:
        raise RefusedError(
            f"Requested sample logprobs of {count}, which is greater than max allowed: {_MOST_LOGPROBS}", "logprobs"
        )
    return count


def _has_grammar(body: dict[str, Any]) -> bool:
    """Whether the output has to follow a grammar, as OpenAI's and vLLM's requests say it."""
    form = body.get("response_format")
    if form is not None and not isinstance(form, dict):
        raise invalid("response_format", "Input should be a valid dictionary")
    if form is not None and form.get("type") not in _FORMS:
        raise invalid("response_format.type", f"Input should be {' or '.join(map(repr, _FORMS))}")
    return (form or {}).get("type", "text") != "text" or bool(body.get("structured_outputs"))


def _prompts(prompt: object) -> list[Prompt]:
    """One prompt or several, each as text or token ids."""
    if prompt is None:
        raise RefusedError("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    several = isinstance(prompt, list) and bool(prompt) and not all(map(_is_id, prompt))
    prompts = (
        [_read_prompt(entry) for entry in prompt] if several and isinstance(prompt, list) else [_read_prompt(prompt)]
    )
    if len(prompts) > _MOST_PROMPTS:
        raise RefusedError(f"a request may have {_MOST_PROMPTS:,} prompts, not {len(prompts):,}.", "prompt")
    return prompts


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _read_prompt(prompt: object) -> Prompt:
    if isinstance(prompt, list) and all(map(_is_id, prompt)):
        if not prompt:
            raise RefusedError("The decoder prompt cannot be empty", "prompt")
        return Prompt(prompt, TOKEN * len(prompt))
    if not isinstance(prompt, str):
        raise invalid("prompt", "Input should be a valid string, list of strings or list of integers")
    if not prompt:
        raise RefusedError("The decoder prompt cannot be empty", "prompt")
    return Prompt(tokens_of(prompt), prompt)


def tokens_of(text: str) -> list[int]:
    """Numbers for the tokens of a text, four characters each; equal texts have equal numbers."""
    pieces = (text[first : first + CHARACTERS] for first in range(0, len(text), CHARACTERS))
    return [int.from_bytes(piece.encode("utf-8", "surrogatepass")[:7].ljust(1, b" "), "little") for piece in pieces]


def _chat(body: dict[str, Any]) -> Prompt:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise invalid("messages", "Field required: a list of messages")
    if not all(isinstance(message.get("role"), str) for message in messages):
        raise invalid("messages.role", "Field required")
    text = json.dumps(messages)
    return Prompt(tokens_of(text), text)


def tokenized(body: object, longest: int) -> dict[str, Any]:
    """The answer of ``/tokenize``: numbers that the endpoint gives to a prompt's pieces of four characters."""
    if not isinstance(body, dict):
        raise invalid("body", "Input should be a valid dictionary or object to extract fields from")
    if "messages" not in body and not isinstance(body.get("prompt"), str):
        raise invalid("prompt", "Field required")
    tokens = _chat(body).tokens if "messages" in body else tokens_of(body["prompt"])
    names = [_piece(token) for token in tokens] if _truth(body, "return_token_strs") else None
    return {"count": len(tokens), "max_model_len": longest, "tokens": tokens, "token_strs": names}


def detokenized(body: object) -> dict[str, Any]:
    """The answer of ``/detokenize``: the text of numbers that ``/tokenize`` gave."""
    tokens = body.get("tokens") if isinstance(body, dict) else None
    if not isinstance(tokens, list) or not all(_is_id(token) and token < 1 << 56 for token in tokens):
        raise invalid("tokens", "Input should be a valid list of integers")
    return {"prompt": "".join(map(_piece, tokens))}


def _piece(token: int) -> str:
    return token.to_bytes(7, "little").rstrip(b"\0").decode("utf-8", "replace")
