"""OpenAI-compatible endpoint in front of simulated engines, for benchmark clients.

It serves completions and chat completions, streamed or not. Tokens are placeholders, sent at the times that the
simulated engines produce them. Simulated time runs ``speed`` times as fast as wall-clock time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from presim.errors import InputError
from presim.serving.engines.engine import Fleet
from presim.serving.engines.live import Emitted, LiveEngine

_CHARACTERS = 4  # characters per token of a text prompt: a rule of thumb
_MOST_BODY = 64 << 20
_DEFAULT_OUTPUT = 16  # OpenAI's default of max_tokens


class Server:
    """Simulated engines and the clients that wait for tokens."""

    def __init__(self, fleet: Fleet, model: str, speed: float = 1.0, grammar_ns: int = 0) -> None:
        self.engine, self.model, self.speed, self.grammar_ns = LiveEngine(fleet), model, speed, grammar_ns
        self.adapters: dict[str, int] = {}  # numbers of LoRA adapters by the names that clients ask for
        self.takes_adapters = fleet.replicas[0].limits.max_loras > 0
        self.waiting: dict[int, asyncio.Queue[Emitted]] = {}
        self.begin = time.monotonic()
        self.changed = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def now_ns(self) -> int:
        """Simulated time."""
        return int((time.monotonic() - self.begin) * self.speed * 1e9)

    async def serve(self, host: str, port: int) -> asyncio.Server:
        """Start listening; port 0 selects a free port."""
        task = asyncio.create_task(self._clock())
        self.tasks.add(task)
        return await asyncio.start_server(self._client, host, port)

    async def close(self) -> None:
        """Stop the clock."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _clock(self) -> None:
        """Advance simulated time with wall-clock time, and deliver tokens when they are due."""
        while True:
            self.changed.clear()
            for token in self.engine.advance(self.now_ns):
                self._later(token)
            following = self.engine.next_event_ns
            wait = None if following is None else max(following - self.now_ns, 0) / 1e9 / self.speed
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), wait)

    def _later(self, token: Emitted) -> None:
        if (queue := self.waiting.get(token.request)) is None:
            return
        wait = max(token.when_ns - self.now_ns, 0) / 1e9 / self.speed
        asyncio.get_running_loop().call_later(wait, queue.put_nowait, token)

    async def tokens(
        self, prompt: list[int], output: int, adapter: int = 0, grammar_ns: int = -1
    ) -> AsyncIterator[Emitted]:
        """The tokens of a request, as they come; one that is left in the middle is aborted."""
        item = self.engine.submit(prompt, output, self.now_ns, adapter=adapter, grammar_ns=grammar_ns)
        queue = self.waiting[item] = asyncio.Queue()
        self.changed.set()
        try:
            while True:
                token = await queue.get()
                yield token
                if token.is_last:
                    return
        finally:
            self.waiting.pop(item, None)
            self.engine.abort(item)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, which may carry several requests in sequence."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while await self._request(reader, writer):
                pass
        writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, *_ = [*head[0].split(" "), "", ""]
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in head[1:])}
        length = int(headers.get("content-length") or 0)
        if length > _MOST_BODY:
            _answer(writer, 413, {"error": {"message": f"the body is longer than {_MOST_BODY} bytes"}})
            return False
        body = await reader.readexactly(length)
        try:
            await self._route(method, path.partition("?")[0], body, writer)
        except (InputError, ValueError, TypeError) as error:
            _answer(writer, 400, {"error": {"message": str(error), "type": "BadRequestError", "code": 400}})
        await writer.drain()
        return headers.get("connection", "").lower() != "close"

    async def _route(self, method: str, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if path in ("/health", "/ping", "/version"):
            _answer(writer, 200, {"version": "presim"})
        elif path == "/v1/models":
            entry = {"id": self.model, "object": "model", "owned_by": "presim", "max_model_len": self.engine.longest}
            _answer(writer, 200, {"object": "list", "data": [entry]})
        elif method == "POST" and path in ("/v1/completions", "/v1/chat/completions"):
            await self._complete(json.loads(body), "chat" in path, writer)
        else:
            _answer(writer, 404, {"error": {"message": f"{method} {path} is not supported"}})

    def _adapter(self, asked: dict[str, Any]) -> int:
        """The adapter that a request's model names: any name but the model's own, where the engine takes adapters."""
        name = asked.get("model")
        if not self.takes_adapters or not isinstance(name, str) or name == self.model:
            return 0
        return self.adapters.setdefault(name, len(self.adapters) + 1)

    async def _complete(self, body: dict[str, Any], is_chat: bool, writer: asyncio.StreamWriter) -> None:
        prompt = _tokens(body, is_chat)
        output = int(body.get("max_completion_tokens") or body.get("max_tokens") or _DEFAULT_OUTPUT)
        stream = self.tokens(prompt, output, self._adapter(body), self.grammar_ns if _has_grammar(body) else -1)
        if not body.get("stream"):
            count = 0
            async for _ in stream:
                count += 1
            _answer(writer, 200, _body(self.model, is_chat, " token" * count, "length", _usage(prompt, count)))
            return
        count = 0
        async for token in stream:
            if not count:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                )
            count += 1
            finish = "length" if token.is_last else None
            _event(writer, json.dumps(_body(self.model, is_chat, " token", finish, None, streams=True)))
            try:
                await writer.drain()
            except ConnectionError:
                await stream.aclose()  # type: ignore[attr-defined]  # a generator
                raise
        if (body.get("stream_options") or {}).get("include_usage"):
            last = _body(self.model, is_chat, "", None, _usage(prompt, count), streams=True)
            _event(writer, json.dumps({**last, "choices": []}))
        _event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")


def _has_grammar(asked: dict[str, Any]) -> bool:
    """Whether the output has to follow a grammar, as OpenAI's and vLLM's requests say it."""
    kind = (asked.get("response_format") or {}).get("type", "text")
    return kind != "text" or bool(asked.get("structured_outputs"))


def _tokens(asked: dict[str, Any], is_chat: bool) -> list[int]:
    """The prompt as numbers: token ids as they are, of text four characters each."""
    prompt = asked.get("messages") if is_chat else asked.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(each, int) for each in prompt):
        return prompt
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        return _tokens({"prompt": prompt[0]}, False)
    text = prompt if isinstance(prompt, str) else json.dumps(prompt)
    if not text:
        raise InputError("the request has no prompt; send text or token ids")
    pieces = (text[first : first + _CHARACTERS] for first in range(0, len(text), _CHARACTERS))
    return [int.from_bytes(piece.encode()[:7].ljust(1, b" "), "little") for piece in pieces]


def _usage(prompt: list[int], count: int) -> dict[str, int]:
    return {"prompt_tokens": len(prompt), "completion_tokens": count, "total_tokens": len(prompt) + count}


def _body(
    model: str, is_chat: bool, text: str, finish: str | None, usage: dict[str, int] | None, *, streams: bool = False
) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if is_chat:
        choice["delta" if streams else "message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    kind = "text_completion" if not is_chat else "chat.completion" + (".chunk" if streams else "")
    return {"id": "cmpl-presim", "object": kind, "created": 0, "model": model, "choices": [choice], "usage": usage}


def _event(writer: asyncio.StreamWriter, data: str) -> None:
    payload = f"data: {data}\n\n".encode()
    writer.write(f"{len(payload):x}\r\n".encode() + payload + b"\r\n")


def _answer(writer: asyncio.StreamWriter, status: int, content: dict[str, Any]) -> None:
    payload = json.dumps(content).encode()
    reason = {200: "OK", 400: "Bad Request", 404: "Not Found", 413: "Content Too Large"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
    writer.write(head.encode() + payload)
