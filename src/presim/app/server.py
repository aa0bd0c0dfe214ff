"""The application's JSON interface and its page. It listens on this machine only, and asks for a token."""

from __future__ import annotations

import hashlib
import hmac
import threading
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from presim.app import words
from presim.app.state import State
from presim.app.timelines import PREFIX
from presim.app.what_if import RefusedError
from presim.cli.declared import Values
from presim.errors import InputError
from presim.files import FormatError, decode_json
from presim.process.localhost import HOSTS
from presim.report.palette import stylesheet

STATIC = Path(__file__).with_name("static")
TOKEN = "x-presim-token"
_POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
_COOKIE = "presim-view"
_MOST_BYTES = 64 << 20  # of an uploaded file


class _Guard(BaseHTTPMiddleware):
    """Refuses pages of other sites, and questions without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        super().__init__(app)
        self._token = token
        self._cookie = hashlib.sha256(f"view {token}".encode()).hexdigest()  # cookies go to every port; the token stays

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """See starlette."""
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            return _refused(f"requests of {origin} are refused: open the page itself", 403)
        path, token = request.url.path, request.headers.get(TOKEN) or request.query_params.get("token", "")
        has_token = hmac.compare_digest(token.encode(), self._token.encode())
        may_look = has_token or hmac.compare_digest(request.cookies.get(_COOKIE, "").encode(), self._cookie.encode())
        if (path.startswith("/api/") and not has_token) or (path.startswith(f"{PREFIX}/") and not may_look):
            return _refused("the token is missing or old: open the address that `presim app` printed", 403)
        response = await call_next(request)
        if path.startswith(f"{PREFIX}/") and has_token:  # what the page of timelines asks for has no token
            response.set_cookie(_COOKIE, self._cookie, path=f"{PREFIX}/", httponly=True, samesite="strict")
        response.headers["content-security-policy"] = _POLICY
        response.headers["x-content-type-options"] = "nosniff"
        response.headers["referrer-policy"] = "no-referrer"
        return response


class _Answers:
    """What each address answers. Methods without ``async`` run in threads."""

    def __init__(self, state: State) -> None:
        self._state = state

    def index(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    def palette(self, request: Request) -> Response:
        return Response(stylesheet(), media_type="text/css")

    def project(self, request: Request) -> Response:
        return _json(self._state.overview())

    def form(self, request: Request) -> Response:
        return _json(self._state.form(request.path_params["question"]))

    async def check(self, request: Request) -> Response:
        question, values = request.path_params["question"], _values(await request.body())
        return _json(await run_in_threadpool(words.check, question, values))

    async def start(self, request: Request) -> Response:
        question, values = request.path_params["question"], _values(await request.body())
        return _json(await run_in_threadpool(self._state.start, question, values))

    async def change(self, request: Request) -> Response:
        question, values = request.path_params["question"], _values(await request.body())
        return _json(await run_in_threadpool(self._state.what_if.ask, question, values))

    def job(self, request: Request) -> Response:
        return _json(self._state.job(request.path_params["name"]))

    def cancel(self, request: Request) -> Response:
        name = request.path_params["name"]
        threading.Thread(target=self._state.jobs.cancel, args=(name,)).start()
        return _json({})

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
        return _json({})

    async def upload(self, request: Request) -> Response:
        body = await request.body()
        if len(body) > _MOST_BYTES:
            raise InputError(
                f"the file has {len(body):,} bytes, and at most {_MOST_BYTES:,} are taken: copy it into the folder"
            )
        self._state.upload(request.path_params["name"], body)
        return _json({})


def application(state: State, token: str) -> Starlette:
    """The application of a project; ``token``: what questions must bring."""
    answers = _Answers(state)
    return Starlette(
        routes=[
            Route("/", answers.index),
            Route("/palette.css", answers.palette),
            Route("/api/project", answers.project),
            Route("/api/questions/{question}", answers.form),
            Route("/api/questions/{question}/check", answers.check, methods=["POST"]),
            Route("/api/questions/{question}/start", answers.start, methods=["POST"]),
            Route("/api/questions/{question}/change", answers.change, methods=["POST"]),
            Route("/api/jobs/{name}", answers.job),
            Route("/api/jobs/{name}/cancel", answers.cancel, methods=["POST"]),
            Route("/api/comparisons/{names}", answers.comparison),
            Route("/api/results/{name}", answers.result),
            Route("/api/results/{name}", answers.remove, methods=["DELETE"]),
            Route("/api/results/{name}/page", answers.page),
            Route("/api/results/{name}/panes/{pane}", answers.pane),
            Route("/api/files/{name}", answers.upload, methods=["PUT"]),
            Mount(PREFIX, state.timelines),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS)),
            Middleware(_Guard, token=token),
        ],
        exception_handlers={InputError: _input_error, HTTPException: _http_error},
    )


def _values(body: bytes) -> Values:
    try:
        values: dict[str, str | bool] = msgspec.convert(decode_json(body), dict[str, str | bool])
    except (FormatError, msgspec.ValidationError) as error:
        raise InputError(f"the values of a form are an object of texts and switches ({error})") from error
    return values


def _input_error(request: Request, error: Exception) -> Response:
    errors = error.errors if isinstance(error, RefusedError) else {}
    return _refused(str(error), 400, errors)


def _http_error(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    return _refused(f"{request.url.path[:80]}: {HTTPStatus(code).phrase.lower()}; open the page itself, /", code)


def _refused(sentence: str, code: int, errors: dict[str, str] | None = None) -> Response:
    content = {"error": sentence, "errors": errors or {}}
    return Response(msgspec.json.encode(content), code, media_type="application/json")


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
