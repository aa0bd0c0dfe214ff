"""Answers in the form of OpenAI's interface: whole, or as the events of a stream."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from presim.serving.endpoint.asked import TOKEN, Asked, Prompt


@dataclasses.dataclass(frozen=True)
class OutputChoice:
    """One of the outputs of a request: its number, prompt and end."""

    index: int
    prompt: Prompt
    output: int  # tokens
    stop: str | None  # the string that ends it before its limit

    def text(self, query: Asked) -> str:
        """All of its text: a placeholder for each token, up to its stop."""
        text = TOKEN * self.output
        if self.stop is not None:
            text = text[: text.find(self.stop) + (len(self.stop) if query.keeps_stop else 0)]
        return text

    @property
    def finish(self) -> str:
        """Why it ends."""
        return "length" if self.stop is None else "stop"


@dataclasses.dataclass
class Writer:
    """Makes the answers to one request."""

    query: Asked
    name: str
    model: str
    created: int = dataclasses.field(default_factory=lambda: int(time.time()))

    def whole(self, choices: list[OutputChoice]) -> dict[str, Any]:
        """The answer to a request that is not streamed."""
        entries = []
        for choice in choices:
            entry = self._entry(choice, choice.finish, self._logprobs(choice.output))
            text = choice.text(self.query)
            if self.query.is_chat:
                entry["message"] = {"role": "assistant", "content": text}
            else:
                entry["text"] = (choice.prompt.text if self.query.echo else "") + text
            entries.append(entry)
        return self._body("chat.completion" if self.query.is_chat else "text_completion", entries, usage(choices))

    def role(self, choice: OutputChoice) -> dict[str, Any]:
        """The first event of a choice of a chat."""
        entry = {**self._entry(choice, None, None), "delta": {"role": "assistant", "content": ""}}
        return self._body("chat.completion.chunk", [entry])

    def event(self, choice: OutputChoice, count: int, counts: dict[str, int] | None) -> dict[str, Any]:
        """The event of a choice's token number ``count``, from 1; ``counts``: the usage so far, if asked for."""
        final_text, held_back = choice.text(self.query), self.query.held_back
        first, end = (max(tokens * len(TOKEN) - held_back, 0) for tokens in (count - 1, count))
        text = final_text[first:] if count == choice.output else final_text[first:end]
        if self.query.echo and count == 1:
            text = choice.prompt.text + text
        entry = self._entry(choice, choice.finish if count == choice.output else None, self._logprobs(1))
        if self.query.is_chat:
            entry["delta"] = {"content": text}
        else:
            entry["text"] = text
        return self._body("chat.completion.chunk" if self.query.is_chat else "text_completion", [entry], counts)

    def last(self, choices: list[OutputChoice]) -> dict[str, Any]:
        """The event with the usage of the whole request."""
        return self._body("chat.completion.chunk" if self.query.is_chat else "text_completion", [], usage(choices))

    def _entry(self, choice: OutputChoice, finish: str | None, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        stop = choice.stop if finish == "stop" else None
        return {"index": choice.index, "logprobs": logprobs, "finish_reason": finish, "stop_reason": stop}

    def _logprobs(self, count: int) -> dict[str, Any] | None:
        """Of tokens each of which is the only one there is."""
        count_shown = self.query.logprobs
        if count_shown is None:
            return None
        if self.query.is_chat:
            entry = {"token": TOKEN, "logprob": 0.0, "bytes": list(TOKEN.encode())}
            return {"content": [{**entry, "top_logprobs": [entry] if count_shown else []} for _ in range(count)]}
        return {
            "text_offset": [number * len(TOKEN) for number in range(count)],
            "token_logprobs": [0.0] * count,
            "tokens": [TOKEN] * count,
            "top_logprobs": [{TOKEN: 0.0} for _ in range(count)],
        }

    def _body(self, kind: str, entries: list[dict[str, Any]], counts: dict[str, int] | None = None) -> dict[str, Any]:
        body = {"id": self.name, "object": kind, "created": self.created, "model": self.model, "choices": entries}
        return body if counts is None else {**body, "usage": counts}


def usage(choices: list[OutputChoice]) -> dict[str, int]:
    """Tokens of a request: each prompt counts once."""
    prompts = {id(choice.prompt): len(choice.prompt.tokens) for choice in choices}
    return counts_of(sum(prompts.values()), sum(choice.output for choice in choices))


def counts_of(prompt: int, output: int) -> dict[str, int]:
    """Tokens as OpenAI's interface counts them."""
    return {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}
