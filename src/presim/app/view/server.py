"""The web application: JSON of each pane, and the page that draws them. It listens on localhost only."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from presim.app.view import blocks, details, panes
from presim.app.view.opened import Opened
from presim.app.view.overview import overview
from presim.app.view.panes import Shown
from presim.errors import InputError
from presim.evaluation.figures import kernel_roofline, link_loads, stage_passes
from presim.report.palette import stylesheet
from presim.system.localhost import HOSTS
from presim.system.same_origin import PAGE_HEADERS, SameOrigin

_STATIC = Path(__file__).with_name("static")
_MOST_PIXELS = 8192
_MOST_DIGITS, _MOST_LETTERS = 9, 80  # of a number in a path; of a word in an answer
_LARGEST = 1 << 62  # ns, ranks or pixels: what the arrays of a timeline hold
_Pane = TypeVar("_Pane")
_PANES: dict[str, Callable[[Shown], Any]] = {
    "summary": panes.summary,
    "memory": panes.memory,
    "communication": panes.communication,
    "power": panes.power,
    "roofline": lambda shown: kernel_roofline(shown.evaluation),
    "pipeline": lambda shown: stage_passes(shown.evaluation),
    "network": lambda shown: link_loads(shown.evaluation),
}


class _Answers:
    """What each address answers."""

    def __init__(self, jobs: Sequence[Shown], compare: Callable[[], bytes] | None, results: Sequence[Opened]) -> None:
        self._jobs, self._compare, self._results = jobs, compare, results

    def index(self, request: Request) -> Response:
        return FileResponse(_STATIC / "index.html")

    def listing(self, request: Request) -> Response:
        results = [{"label": result.label, "panes": list(result.panes)} for result in self._results]
        jobs = [job.label for job in self._jobs]
        return _json({"jobs": jobs, "compared": self._compare is not None, "results": results})

    def palette(self, request: Request) -> Response:
        return Response(stylesheet(), media_type="text/css")

    def result(self, request: Request) -> Response:
        result = self._results[_number(request, "result", len(self._results))]
        return _json(_chosen(result.panes, request)())

    def overview(self, request: Request) -> Response:
        return _json(overview(self._job(request), _pixels(request)))

    def pane(self, request: Request) -> Response:
        return _json(_chosen(_PANES, request)(self._job(request)))

    def timeline(self, request: Request) -> Response:
        job, query = self._job(request), request.query_params
        first, last = (_whole(query[name], name) if name in query else None for name in ("from", "to"))
        return _json(panes.timeline(job, _ranks(request, job), first, last, _pixels(request)))

    def find(self, request: Request) -> Response:
        job, query = self._job(request), request.query_params
        text, after = query.get("text", ""), _whole(query.get("after", "-1"), "after")
        if not text:
            raise InputError("text is empty; name what to find, e.g. text=gemm")
        return _json(panes.find(job, _ranks(request, job), text, after))

    def work(self, request: Request) -> Response:
        job, query = self._job(request), request.query_params
        rank, track = (_whole(query.get(name, "0"), name) for name in ("rank", "track"))
        if "index" in query:
            return _json(details.work(job, rank, track, _whole(query["index"], "index")))
        return _json(details.nearest(job, rank, track, _whole(query.get("at", "0"), "at")))

    def sums(self, request: Request) -> Response:
        job = self._job(request)
        return _json(details.sums(job, _ranks(request, job), *_range(request, job)))

    def arrows(self, request: Request) -> Response:
        job = self._job(request)
        return _json(job.arrows.window(_ranks(request, job), *_range(request, job)))

    def blocks(self, request: Request) -> Response:
        job, query = self._job(request), request.query_params
        rank = _whole(query.get("rank", str(min(job.tracks, default=0))), "rank")
        if "entry" in query:
            return _json(blocks.live(job, rank, _whole(query["entry"], "entry")))
        return _json(blocks.over_time(job, rank))

    def comparison(self, request: Request) -> Response:
        if self._compare is None:
            raise InputError("only one job is shown; name two to compare them")
        return Response(self._compare(), media_type="application/json")

    def _job(self, request: Request) -> Shown:
        return self._jobs[_number(request, "job", len(self._jobs))]


def application(
    jobs: Sequence[Shown], compare: Callable[[], bytes] | None = None, results: Sequence[Opened] = ()
) -> Starlette:
    """The application for jobs and results of searches and serving.

    ``compare``: a function that compares two jobs and returns JSON.
    """
    answers = _Answers(jobs, compare, results)
    return Starlette(
        routes=[
            Route("/", answers.index),
            Route("/api/jobs", answers.listing),
            Route("/api/comparison", answers.comparison),
            Route("/api/results/{result}/{pane}", answers.result),
            Route("/api/jobs/{job}/timeline", answers.timeline),
            Route("/api/jobs/{job}/find", answers.find),
            Route("/api/jobs/{job}/work", answers.work),
            Route("/api/jobs/{job}/sums", answers.sums),
            Route("/api/jobs/{job}/arrows", answers.arrows),
            Route("/api/jobs/{job}/blocks", answers.blocks),
            Route("/api/jobs/{job}/overview", answers.overview),
            Route("/api/jobs/{job}/{pane}", answers.pane),
            Route("/palette.css", answers.palette),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS)),
            Middleware(SameOrigin, refusal=_of_other_site, headers=PAGE_HEADERS),
        ],
        exception_handlers={InputError: _input_error, HTTPException: _http_error},
    )


def _number(request: Request, name: str, count: int) -> int:
    """The number of a job or result in the path."""
    word = request.path_params[name]
    if len(word) <= _MOST_DIGITS and word.isascii() and word.isdecimal() and int(word) < count:
        return int(word)
    raise InputError(f"there are {count} {name}s, numbered from 0, and no {name} {_short(word)}")


def _chosen(panes_by_name: Mapping[str, _Pane], request: Request) -> _Pane:
    """The pane in the path."""
    name = request.path_params["pane"]
    if name not in panes_by_name:
        raise InputError(f"there is no pane {_short(name)!r}; use one of {', '.join(panes_by_name)}")
    return panes_by_name[name]


def _short(word: str) -> str:
    """The start of a word, as it can be printed."""
    printable = word.encode("ascii", "backslashreplace").decode()
    return printable if len(printable) <= _MOST_LETTERS else f"{printable[:_MOST_LETTERS]}..."


def _pixels(request: Request) -> int:
    return min(max(_whole(request.query_params.get("pixels", "1200"), "pixels"), 1), _MOST_PIXELS)


def _ranks(request: Request, job: Shown) -> list[int]:
    """The ranks that a request names, at most as many as are drawn; by default the first."""
    words = request.query_params.get("ranks", "").split(",")
    return [_whole(word, "ranks") for word in words if word][: panes.MOST_RANKS] or sorted(job.tracks)[:1]


def _range(request: Request, job: Shown) -> tuple[int, int]:
    """The range of time that a request names, ns; by default the steady step."""
    query, (begin, end) = request.query_params, job.span_ns
    return _whole(query.get("from", str(begin)), "from"), _whole(query.get("to", str(end)), "to")


def _whole(text: str, name: str) -> int:
    try:
        value = int(float(text))
    except (ValueError, OverflowError):
        raise InputError(f"{name}={_short(text)} is not a number") from None
    if abs(value) >= _LARGEST:
        raise InputError(f"{name}={_short(text)} is too large; use a number below 2^62")
    return value


def _of_other_site(origin: str) -> Response:
    return refusal(f"requests of {_short(origin)} are refused: open the page itself", 403)


def _input_error(request: Request, error: Exception) -> Response:
    return refusal(str(error), 400)


def _http_error(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    return refusal(f"{_short(request.url.path)}: {HTTPStatus(code).phrase.lower()}; open the page itself, /", code)


def refusal(words: str, code: int) -> Response:
    """The answer to a request that is not answered."""
    return Response(msgspec.json.encode({"error": words}), code, media_type="application/json")


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def serve(app: Starlette, listening: socket.socket) -> None:
    """Serve requests until Ctrl-C; streams of events end a second later."""
    import uvicorn

    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])
