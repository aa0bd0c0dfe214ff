"""Who may ask: the token in the address may do all; that of a read-only link may only look."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac

from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from presim.app.api import TOKEN
from presim.app.timelines import PREFIX
from presim.app.view.server import refusal

_COOKIE = "presim-view"


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The token of an app, and those made of it, from which it cannot be found."""

    token: str

    @property
    def read_only(self) -> str:
        """The token of links that only show."""
        return self._derived("read")

    @property
    def cookie(self) -> str:
        """What the page of timelines brings instead: cookies go to every port, the token stays."""
        return self._derived("view")

    def is_writer(self, request: Request) -> bool:
        """Whether a request brings the token itself."""
        return _is_same(_token_of(request), self.token)

    def is_reader(self, request: Request) -> bool:
        """Whether a request brings the token or that of a read-only link."""
        return self.is_writer(request) or _is_same(_token_of(request), self.read_only)

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def _token_of(request: Request) -> str:
    return request.headers.get(TOKEN) or request.query_params.get("token", "")


def _is_same(word: str, other_word: str) -> bool:
    return hmac.compare_digest(word.encode(), other_word.encode())


class Guard(BaseHTTPMiddleware):
    """Refuses questions without a token, and changes without the token that may change."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        super().__init__(app)
        self._tokens = tokens

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """See starlette."""
        path, is_reader = request.url.path, self._tokens.is_reader(request)
        is_of_view = path.startswith(f"{PREFIX}/")
        may_look = is_reader or _is_same(request.cookies.get(_COOKIE, ""), self._tokens.cookie)
        if (path.startswith("/api/") and not is_reader) or (is_of_view and not may_look):
            return refusal("the token is missing or old: open the address that `presim app` printed", 403)
        if request.method not in ("GET", "HEAD") and not self._tokens.is_writer(request):
            return refusal("this link only shows: ask for the address that may change the project", 403)
        response = await call_next(request)
        if is_of_view and is_reader:  # what the page of timelines asks for has no token
            response.set_cookie(_COOKIE, self._tokens.cookie, path=f"{PREFIX}/", httponly=True, samesite="strict")
        return response
