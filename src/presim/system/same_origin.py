"""Refuses requests of other sites' pages, and sends what a page may load: for every server of presim."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

_Message: TypeAlias = MutableMapping[str, Any]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

PAGE_HEADERS = {  # of servers with a page: it loads nothing from elsewhere
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",  # the address may have a token
}


class SameOrigin:
    """Middleware of ASGI: a request that names another origin than its host gets ``refusal``'s answer.

    ``refusal`` makes an answer of the origin; ``headers`` are added to all answers.
    """

    def __init__(
        self, app: Application, refusal: Callable[[str], Application], headers: Mapping[str, str] | None = None
    ) -> None:
        self._app, self._refusal = app, refusal
        self._headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]

    async def __call__(self, scope: _Message, receive: Any, send: _Send) -> None:
        """See ASGI."""
        headers = {name: value.decode("latin-1") for name, value in scope.get("headers", [])}
        origin = headers.get(b"origin")
        is_foreign = origin is not None and urlsplit(origin).netloc != headers.get(b"host")

        async def send_with_headers(message: _Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        answer = self._refusal(str(origin)) if is_foreign else self._app
        await answer(scope, receive, send_with_headers)
