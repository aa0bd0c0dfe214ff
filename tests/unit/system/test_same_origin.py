"""Requests of other sites' pages are refused, and answers say what their page may load."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from presim.system.same_origin import PAGE_HEADERS, Application, SameOrigin


def answering(text: str) -> Application:
    """An application with one answer."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
        await send({"type": "http.response.body", "body": text.encode()})

    return application


def answer(headers: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The body and the headers of the answer to a request with these headers."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    guarded = SameOrigin(answering("page"), lambda origin: answering(f"not {origin}"), PAGE_HEADERS)
    raw_headers = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(guarded({"type": "http", "headers": raw_headers}, None, send))
    start, body = messages
    return body["body"].decode(), {name.decode(): value.decode() for name, value in start["headers"]}


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"host": "localhost:8"}, "page"),
        ({"host": "localhost:8", "origin": "http://localhost:8"}, "page"),
        ({"host": "localhost:8", "origin": "http://localhost:9"}, "not http://localhost:9"),
        ({"host": "localhost:8", "origin": "http://evil.example"}, "not http://evil.example"),
        ({"host": "localhost:8", "origin": "null"}, "not null"),
        ({"host": "localhost:8", "origin": ""}, "not "),
    ],
)
def test_an_origin_that_is_not_the_host_is_refused(headers: dict[str, str], body: str) -> None:
    assert answer(headers)[0] == body


def test_every_answer_has_the_headers_of_the_page_beside_its_own() -> None:
    assert answer({"host": "localhost"})[1] == {"x-own": "1", **PAGE_HEADERS}
