"""The application's JSON interface and its page. Questions need a token."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from presim.app import words
from presim.app.answers import Done, Overview, Refusal
from presim.app.api import ADDRESSES, Address, openapi
from presim.app.bundle import FOREVER, index_page
from presim.app.events import changes
from presim.app.guard import Guard, Tokens
from presim.app.state import AppState
from presim.app.timelines import PREFIX
from presim.app.what_if import RefusedError
from presim.cli.declared import Values
from presim.errors import InputError
from presim.report.palette import stylesheet
from presim.system.files import FormatError, decode_json, to_type
from presim.system.localhost import HOSTS
from presim.system.same_origin import PAGE_HEADERS, SameOrigin

STATIC = Path(__file__).with_name("static")
_LEAST_COMPRESSED_BYTES, _COMPRESSION = 2000, 3  # level 3 of zlib: 100 MB/s, and within 10 % of the default's size
_MOST_BYTES = 64 << 20  # of an uploaded file


class _Answers:
    """What each address answers. Methods without ``async`` run in threads."""

    def __init__(self, state: AppState, tokens: Tokens) -> None:
        self._state, self._tokens = state, tokens
        self._index = index_page()

    async def index(self, request: Request) -> Response:
        return HTMLResponse(self._index, headers={"cache-control": "no-cache"})

    async def palette(self, request: Request) -> Response:
        return Response(stylesheet(), media_type="text/css")

    def project(self, request: Request) -> Response:
        return _json(self._overview(request))

    def events(self, request: Request) -> Response:
        content = changes(lambda: self._overview(request))
        headers = {"cache-control": "no-cache", "content-encoding": "identity"}  # an event is not to wait in a buffer
        return StreamingResponse(content, media_type="text/event-stream", headers=headers)

    def openapi(self, request: Request) -> Response:
        return _json(openapi())

    def form(self, request: Request) -> Response:
        return _json(self._state.form(request.path_params["question"]))

    async def check(self, request: Request) -> Response:
        question, values = request.path_params["question"], _values(await request.body())
        return _json(await run_in_threadpool(words.check, question, values, self._state.project.folder))

    async def start(self, request: Request) -> Response:
        question, values = request.path_params["question"], _values(await request.body())
        return _json(await run_in_threadpool(self._state.start, question, values))

    async def change(self, request: Request) -> Response:
        question, values = request.path_params["question"], _values(await request.body())
        self._state.check_allowed(question)
        what_if = self._state.what_if_ahead if "ahead" in request.query_params else self._state.what_if
        return _json(await run_in_threadpool(what_if.ask, question, values))

    def job(self, request: Request) -> Response:
        return _json(self._state.job(request.path_params["name"]))

    def cancel(self, request: Request) -> Response:
        name = request.path_params["name"]
        threading.Thread(target=self._state.jobs.cancel, args=(name,)).start()
        return _json(Done())

    def result(self, request: Request) -> Response:
        return _json(self._state.result(request.path_params["name"]))

    def pane(self, request: Request) -> Response:
        return _json(self._state.pane(request.path_params["name"], request.path_params["pane"]))

    def page(self, request: Request) -> Response:
        return HTMLResponse(self._state.page(request.path_params["name"]))

    def comparison(self, request: Request) -> Response:
        return _json(self._state.comparison(request.path_params["names"].split(",")))

    def remove(self, request: Request) -> Response:
        self._state.remove(request.path_params["name"])
        return _json(Done())

    async def upload(self, request: Request) -> Response:
        body = await request.body()
        if len(body) > _MOST_BYTES:
            raise InputError(
                f"the file has {len(body):,} bytes, and at most {_MOST_BYTES:,} are taken: copy it into the folder"
            )
        self._state.upload(request.path_params["name"], body)
        return _json(Done())

    def _overview(self, request: Request) -> Overview:
        return self._state.overview(may_change=self._tokens.is_writer(request))


def application(state: AppState, token: str, hosts: Sequence[str] = HOSTS) -> Starlette:
    """The application of a project; ``token``: what questions must bring; ``hosts``: names that address it."""
    tokens = Tokens(token)
    answers = _Answers(state, tokens)
    routes = [
        Route(f"/api{_route(address)}", getattr(answers, address.answer), methods=[address.method])
        for address in ADDRESSES
    ]
    return Starlette(
        routes=[
            Route("/", answers.index),
            Route("/palette.css", answers.palette),
            *routes,
            Mount(PREFIX, state.timelines),
            Mount("/static", _Static(directory=STATIC)),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)),
            Middleware(GZipMiddleware, minimum_size=_LEAST_COMPRESSED_BYTES, compresslevel=_COMPRESSION),
            Middleware(SameOrigin, refusal=_of_other_site, headers=PAGE_HEADERS),
            Middleware(Guard, tokens=tokens),
        ],
        exception_handlers={InputError: _input_error, OSError: _system_error, HTTPException: _http_error},
    )


def _route(address: Address) -> str:
    """The path as starlette matches it; an uploaded file may be in a folder."""
    return address.path.replace("{name}", "{name:path}") if address.body == "file" else address.path


class _Static(StaticFiles):
    """Files of the bundle: kept by browsers where the address has a digest, else asked for anew."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """See starlette."""
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = FOREVER if b"v=" in scope["query_string"] else "no-cache"
        return response


def _of_other_site(origin: str) -> Response:
    return _refused(f"requests of {origin[:80]} are refused: open the page itself", 403)


def _values(body: bytes) -> Values:
    try:
        values: dict[str, str | bool] = to_type(decode_json(body), dict[str, str | bool])
    except (FormatError, msgspec.ValidationError) as error:
        raise InputError(f"the values of a form are an object of texts and switches ({error})") from error
    for name, value in values.items():
        if not str(value).isprintable():
            raise InputError(f"{name} has a character that cannot be printed: {str(value)[:80]!a}")
    return values


def _input_error(request: Request, error: Exception) -> Response:
    errors = error.errors if isinstance(error, RefusedError) else {}
    return _refused(str(error), 400, errors)


def _system_error(request: Request, error: Exception) -> Response:
    return _refused(f"{error}: is the project folder still there, with space, and may presim write into it?", 400)


def _http_error(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    return _refused(f"{request.url.path[:80]}: {HTTPStatus(code).phrase.lower()}; open the page itself, /", code)


def _refused(sentence: str, code: int, errors: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(Refusal(sentence, errors or {})), code, media_type="application/json")


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
