"""The web application: addresses of vLLM's endpoint. It answers clients on this machine only."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from presim.errors import InputError
from presim.serving.endpoint.asked import Asked, RefusedError, asked_of, detokenized, invalid, tokenized
from presim.serving.endpoint.clients import Clients
from presim.serving.endpoint.openai_responses import OutputChoice, Writer, counts_of
from presim.serving.engines.engine import Fleet
from presim.system.files import FormatError, decode_foreign_json
from presim.system.localhost import HOSTS
from presim.system.same_origin import SameOrigin

_MOST_BODY = 64 << 20  # bytes


class Endpoint:
    """What each address answers."""

    def __init__(self, fleet: Fleet, model: str, speed: float = 1.0, grammar_ns: int = 0) -> None:
        self.fleet, self.model, self.speed, self.grammar_ns = fleet, model, speed, grammar_ns
        self.adapters: dict[str, int] = {}  # numbers of LoRA adapters by the names that clients ask for
        self.takes_adapters = fleet.replicas[0].limits.max_loras > 0
        self.longest = max(replica.limits.max_model_len for replica in fleet.replicas)
        self._names = itertools.count()

    @contextlib.asynccontextmanager
    async def running(self, app: Starlette) -> AsyncIterator[None]:
        """Run the engines as long as the application runs."""
        self.clients = Clients(self.fleet, self.speed)
        clock = asyncio.create_task(self.clients.run())
        yield
        clock.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await clock

    async def completions(self, request: Request) -> Response:
        """``/v1/completions``: one or several prompts, each with `n` outputs."""
        return await self._complete(request, is_chat=False)

    async def chat(self, request: Request) -> Response:
        """``/v1/chat/completions``."""
        return await self._complete(request, is_chat=True)

    async def tokenize(self, request: Request) -> Response:
        """``/tokenize``: numbers of the pieces of a prompt."""
        body = await _body(request)
        self._adapter(body.get("model") if isinstance(body, dict) else None)
        return _json(tokenized(body, self.longest))

    async def detokenize(self, request: Request) -> Response:
        """``/detokenize``: the text of such numbers."""
        return _json(detokenized(await _body(request)))

    async def models(self, request: Request) -> Response:
        """``/v1/models``: the model, and the adapters that clients named."""
        common = {"object": "model", "created": 0, "owned_by": "presim", "permission": []}
        entries = [{"id": self.model, "root": self.model, "parent": None, "max_model_len": self.longest, **common}]
        entries += [{"id": name, "root": name, "parent": self.model, **common} for name in self.adapters]
        return _json({"object": "list", "data": entries})

    async def metrics(self, request: Request) -> Response:
        """``/metrics``: counts and times in simulated time, in the text of Prometheus."""
        return Response(self.clients.gauges.text(self.clients, self.model), media_type="text/plain; version=0.0.4")

    async def health(self, request: Request) -> Response:
        """``/health`` and ``/ping``: nothing, as vLLM answers."""
        return Response()

    async def version(self, request: Request) -> Response:
        """``/version``: says that no engine answers."""
        return _json({"version": "presim"})

    def _adapter(self, name: object) -> int:
        """The adapter that a request's model names: any name but the model's own, where the engine takes adapters."""
        if not name or name == self.model:
            return 0
        if not self.takes_adapters:
            message = f"The model `{name}` does not exist. Valid aliases: {self.model}."
            raise RefusedError(message, "model", 404, "NotFoundError")
        return self.adapters.setdefault(str(name), len(self.adapters) + 1)

    async def _complete(self, request: Request, *, is_chat: bool) -> Response:
        body = await _body(request)
        if isinstance(body, dict):
            self._adapter(body.get("model"))
        query = asked_of(body, self.longest, is_chat=is_chat)
        choices: list[OutputChoice] = []
        for prompt in query.prompts:
            output, stop = query.output_of(prompt, self.longest)
            choices += [OutputChoice(len(choices) + number, prompt, output, stop) for number in range(query.choices)]
        writer = Writer(query, f"{'chatcmpl' if is_chat else 'cmpl'}-{next(self._names)}", query.model or self.model)
        if query.streams:
            return StreamingResponse(self._events(query, choices, writer), media_type="text/event-stream")
        tokens = asyncio.create_task(self._wait(query, choices))
        while not tokens.done():
            await asyncio.wait((tokens,), timeout=0.5)
            if not tokens.done() and await request.is_disconnected():
                tokens.cancel()
                return Response(status_code=499)
        tokens.result()
        return _json(writer.whole(choices))

    def _tokens(self, query: Asked, choice: OutputChoice) -> AsyncIterator[Any]:
        grammar_ns = self.grammar_ns if query.has_grammar else -1
        return self.clients.tokens(choice.prompt.tokens, choice.output, self._adapter(query.model), grammar_ns)

    async def _wait(self, query: Asked, choices: list[OutputChoice]) -> None:
        """Wait for the last token of all choices."""

        async def wait(choice: OutputChoice) -> None:
            async with contextlib.aclosing(self._tokens(query, choice)) as tokens:  # type: ignore[type-var]
                async for _ in tokens:
                    pass

        readers = [asyncio.create_task(wait(choice)) for choice in choices if choice.output]
        try:
            await asyncio.gather(*readers)
        finally:
            for reader in readers:
                reader.cancel()

    async def _events(self, query: Asked, choices: list[OutputChoice], writer: Writer) -> AsyncIterator[bytes]:
        """The events of a stream; a client that leaves ends it, and with it its requests."""
        queue: asyncio.Queue[OutputChoice] = asyncio.Queue()

        async def read(choice: OutputChoice) -> None:
            async with contextlib.aclosing(self._tokens(query, choice)) as tokens:  # type: ignore[type-var]
                async for _ in tokens:
                    queue.put_nowait(choice)

        readers = [asyncio.create_task(read(choice)) for choice in choices if choice.output]
        counts = dict.fromkeys(range(len(choices)), 0)
        prompt_tokens = sum(len(prompt.tokens) for prompt in query.prompts)
        try:
            if query.is_chat:
                for choice in choices:
                    yield _event(writer.role(choice))
            for _ in range(sum(choice.output for choice in choices)):
                choice = await queue.get()
                counts[choice.index] += 1
                so_far = counts_of(prompt_tokens, sum(counts.values())) if query.running_usage else None
                yield _event(writer.event(choice, counts[choice.index], so_far))
            if query.usage:
                yield _event(writer.last(choices))
            yield b"data: [DONE]\n\n"
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)


def application(endpoint: Endpoint) -> Starlette:
    """The application of an endpoint."""
    post: list[str] = ["POST"]
    return Starlette(
        routes=[
            Route("/v1/completions", endpoint.completions, methods=post),
            Route("/v1/chat/completions", endpoint.chat, methods=post),
            Route("/v1/models", endpoint.models),
            Route("/tokenize", endpoint.tokenize, methods=post),
            Route("/detokenize", endpoint.detokenize, methods=post),
            Route("/metrics", endpoint.metrics),
            Route("/health", endpoint.health),
            Route("/ping", endpoint.health, methods=["GET", "POST"]),
            Route("/version", endpoint.version),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS)),
            Middleware(SameOrigin, refusal=_of_other_site),
        ],
        exception_handlers={RefusedError: _refusal, InputError: _input_error, HTTPException: _http_error},
        lifespan=endpoint.running,
    )


def _of_other_site(origin: str) -> Response:
    return _refusal(None, RefusedError(f"Requests of {origin[:80]} are refused.", None, 403, "Forbidden"))


async def _body(request: Request) -> Any:
    """The body as JSON, up to a size."""
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > _MOST_BODY:
            raise RefusedError(f"The body is longer than {_MOST_BODY} bytes.", None, 413, "Content Too Large")
        pieces.append(piece)
    try:
        return decode_foreign_json(b"".join(pieces))
    except FormatError as error:
        raise invalid("body", f"JSON decode error: {error}") from error


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


def _json(content: dict[str, Any], code: int = 200) -> Response:
    return Response(msgspec.json.encode(content), code, media_type="application/json")


def _refusal(request: Request | None, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return _json({"error": error.content}, error.code)


def _input_error(request: Request, error: Exception) -> Response:
    return _refusal(None, RefusedError(str(error)))


def _http_error(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    phrase = HTTPStatus(code).phrase
    return _refusal(None, RefusedError(phrase, None, code, phrase))


def serve(endpoint: Endpoint, listening: socket.socket) -> None:
    """Serve requests until Ctrl-C."""
    import uvicorn

    config = uvicorn.Config(application(endpoint), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])
